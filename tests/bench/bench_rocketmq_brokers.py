"""Two RocketMQ brokers and some sidecars: `python -m tests.bench.bench_rocketmq_brokers`.

    [--messages 12000] [--sidecars 1,2,3] [--without-links] [--share 20] [--runs 5]

Workers beside each sidecar take 32 messages a call from a backlog and ack them. Messages a second,
messages for a second of processor of all sidecars, and of the busiest one: what that allows is
what they do together where each has a core of its own. On two cores that brokers, store and
clients share, the rate by the clock says little.

`--share PERCENT` gives each sidecar so much of a core and no more, by a control group (needs root):
then one sidecar uses up its share, and the rate by the clock says what a second one brings, if
the brokers, the store and the clients find enough of the machine left (`idle_cores`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ackd_torture.child import children_of
from ackd_torture.parts import Sidecar, Valkey, Value
from tests.bench.bench_one_partition import SUB, Site
from tests.bench.load import Job
from tests.bench.measure import Load, cpu_us, drive, machine
from tests.support.paths import remove_run_dir, run_dir
from tests.support.rocketmq import RocketMQ, RocketMQOptions
from tests.support.rocketmq.part import RocketMQClusterAt
from tests.support.wait import wait_until

QUEUES = 4
BATCH = 32
PERIOD_US = 10_000
WARM = 2_000
SPARE = 3_000
"""Workers take some more than their share, and none may wait for the last ones."""


def owned(sidecar: Sidecar) -> int:
    """Partitions that it owns, as it says."""
    url = f"{sidecar.admin_url}/v1/subscriptions/{SUB}/lag"
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  http
        rows = json.load(answer)["partitions"]
    return sum(row["owner"] == sidecar.name for row in rows)


def java_us() -> int:
    """CPU time of the brokers, their proxy and name server, which this process started."""
    return sum(
        cpu_us(pid)
        for pid in children_of(os.getpid())
        if Path(f"/proc/{pid}/comm").read_text() == "java\n"
    )


def idle_s() -> float:
    """How long processors of the machine had nothing to do."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[4]) / os.sysconf("SC_CLK_TCK")


def clients_us() -> float:
    """CPU time of the clients that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e6


class Share:
    """Control groups that bound what each of some processes gets of a core."""

    def __init__(self, percent: int) -> None:
        self._percent = percent
        self._made: list[Path] = []

    def bind(self, pid: int) -> None:
        """From now on it gets that much."""
        if not self._percent:
            return
        quota_us = PERIOD_US * self._percent // 100
        old = Path("/sys/fs/cgroup/cpu")
        group = (old if old.exists() else old.parent) / f"ackd-bench-{pid}"
        group.mkdir()
        self._made.append(group)
        if old.exists():
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        (group / "cgroup.procs").write_text(str(pid))

    def free(self) -> None:
        """Remove the groups of processes that have ended."""
        for each in self._made:
            wait_until(lambda: _removed(each), "its processes to end")  # noqa: B023 -- at once
        self._made.clear()


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def worked(site: Site, messages: int) -> Load:
    """Each sidecar's workers take their share."""
    share = messages // len(site.sidecars)
    jobs = [Job(each.port, SUB, 4, BATCH, "joined", share) for each in site.sidecars]
    with ThreadPoolExecutor(len(jobs)) as pool:
        done = [*pool.map(lambda job: drive(job, 1), jobs)]
    return Load(sum(each.done for each in done), seconds=max(each.seconds for each in done))


def measured(
    rocketmq: RocketMQ, store: Valkey, folder: Path, count: int, wish: argparse.Namespace
) -> dict[str, object]:
    """Figures of so many sidecars."""
    part, topic = RocketMQClusterAt(rocketmq, 15_000, group=SUB), f"bench-{count}-{time.time_ns()}"
    part.create_topic(topic, QUEUES)
    sections: dict[str, dict[str, Value]] = {"peers": {"on": False}} if wish.without_links else {}
    site = Site(part, store, folder / f"{count}", topic, sections=sections)
    site.folder.mkdir(exist_ok=True)
    messages, share = wish.messages, Share(wish.share)
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
        for each in site.sidecars:
            share.bind(each.pid)
        others = java_us(), cpu_us(store.pid), clients_us(), idle_s()
        began = time.monotonic()
        before = [cpu_us(each.pid) for each in site.sidecars]
        load = worked(site, messages)
        used = [cpu_us(each.pid) - was for each, was in zip(site.sidecars, before, strict=True)]
        took_s = time.monotonic() - began
        now = java_us(), cpu_us(store.pid), clients_us(), idle_s()
    finally:
        site.stop()
        share.free()
    broker, stored, clients, idle = (each - was for each, was in zip(now, others, strict=True))
    return {
        "sidecars": count,
        "messages": load.done,
        "per_s": round(load.done / load.seconds),
        "us_a_message": round(sum(used) / load.done, 1),
        "busiest_us_a_message": round(max(used) / load.done, 1),
        "per_s_with_a_core_each": round(1_000_000 * load.done / max(used)),
        "cores": [round(each / 1e6 / took_s, 3) for each in used],
        "brokers_us_a_message": round(broker / load.done, 1),
        "store_us_a_message": round(stored / load.done, 1),
        "clients_us_a_message": round(clients / load.done, 1),
        "idle_cores": round(idle / took_s, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=12_000)
    parser.add_argument("--sidecars", default="1,2,3")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--without-links", action="store_true")
    parser.add_argument("--share", type=int, default=0)
    wish = parser.parse_args()
    folder = run_dir("bench-rocketmq-brokers")
    store = Valkey(folder)
    try:
        store.start()
        with RocketMQ(RocketMQOptions(cluster=True, brokers=2)) as rocketmq:
            counts = [int(each) for each in wish.sidecars.split(",")]
            for count in counts * wish.runs:
                figures = measured(rocketmq, store, folder, count, wish)
                sys.stdout.write(json.dumps(figures) + "\n")
                sys.stdout.flush()
        sys.stdout.write(json.dumps(machine()) + "\n")
    finally:
        store.stop()
        remove_run_dir(folder)


if __name__ == "__main__":
    main()
