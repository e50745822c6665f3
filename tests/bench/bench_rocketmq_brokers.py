"""Two RocketMQ brokers and some sidecars: `python -m tests.bench.bench_rocketmq_brokers`.

    [--messages 12000] [--sidecars 1,2,3] [--without-links]

Workers beside each sidecar take 32 messages a call from a backlog and ack them. Messages a second,
messages for a second of processor of all sidecars, and of the busiest one: what that allows is
what they do together where each has a core of its own. On two cores that brokers, store and
clients share, the rate by the clock says little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ackd_torture.parts import Sidecar, Valkey
from tests.bench.bench_one_partition import SUB, Site
from tests.bench.load import Job
from tests.bench.measure import Load, cpu_us, drive, machine
from tests.support.paths import remove_run_dir, run_dir
from tests.support.rocketmq import RocketMQ, RocketMQOptions
from tests.support.rocketmq.part import RocketMQClusterAt
from tests.support.wait import wait_until

QUEUES = 4
BATCH = 32
WARM = 2_000
SPARE = 3_000
"""Workers take some more than their share, and none may wait for the last ones."""


def owned(sidecar: Sidecar) -> int:
    """Partitions that it owns, as it says."""
    url = f"{sidecar.admin_url}/v1/subscriptions/{SUB}/lag"
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  http
        rows = json.load(answer)["partitions"]
    return sum(row["owner"] == sidecar.name for row in rows)


def worked(site: Site, messages: int) -> Load:
    """Each sidecar's workers take their share."""
    share = messages // len(site.sidecars)
    jobs = [Job(each.port, SUB, 4, BATCH, "joined", share) for each in site.sidecars]
    with ThreadPoolExecutor(len(jobs)) as pool:
        done = [*pool.map(lambda job: drive(job, 1), jobs)]
    return Load(sum(each.done for each in done), seconds=max(each.seconds for each in done))


def measured(
    rocketmq: RocketMQ, store: Valkey, folder: Path, count: int, messages: int, *, links: bool
) -> object:
    """Figures of so many sidecars."""
    part, topic = RocketMQClusterAt(rocketmq, 15_000, group=SUB), f"bench-{count}"
    part.create_topic(topic, QUEUES)
    site = Site(
        part, store, folder / f"{count}", topic, sections={} if links else {"peers": {"on": False}}
    )
    site.folder.mkdir()
    try:
        site.start(count)
        wanted = sorted([0, 0, QUEUES, QUEUES][-count:] if count > 1 else [2 * QUEUES])
        wait_until(
            lambda: sorted(owned(each) for each in site.sidecars) == wanted,
            "the brokers to be shared",
            timeout_s=90,
            ignoring=(OSError,),
        )
        asyncio.run(site.publish(WARM + messages + SPARE))
        worked(site, WARM)
        before = [cpu_us(each.pid) for each in site.sidecars]
        load = worked(site, messages)
        used = [cpu_us(each.pid) - was for each, was in zip(site.sidecars, before, strict=True)]
    finally:
        site.stop()
    return {
        "sidecars": count,
        "messages": load.done,
        "per_s": round(load.done / load.seconds),
        "us_a_message": round(sum(used) / load.done, 1),
        "busiest_us_a_message": round(max(used) / load.done, 1),
        "per_s_with_a_core_each": round(1_000_000 * load.done / max(used)),
        "cpu_ms": [round(each / 1_000) for each in used],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=12_000)
    parser.add_argument("--sidecars", default="1,2,3")
    parser.add_argument("--without-links", action="store_true")
    wish = parser.parse_args()
    folder = run_dir("bench-rocketmq-brokers")
    store = Valkey(folder)
    try:
        store.start()
        with RocketMQ(RocketMQOptions(cluster=True, brokers=2)) as rocketmq:
            for count in map(int, wish.sidecars.split(",")):
                links = not wish.without_links
                figures = measured(rocketmq, store, folder, count, wish.messages, links=links)
                sys.stdout.write(json.dumps(figures) + "\n")
                sys.stdout.flush()
        sys.stdout.write(json.dumps(machine()) + "\n")
    finally:
        store.stop()
        remove_run_dir(folder)


if __name__ == "__main__":
    main()
