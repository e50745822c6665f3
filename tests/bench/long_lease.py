"""A job of five minutes under a lease of 10 s, on Kafka, Pulsar and RocketMQ at once, by hand.

    python -m tests.bench.long_lease [--only kafka,pulsar,rocketmq] [--times 30] [--lease-ms 10000]

Each lease is extended when a seventh of it is left. Meanwhile a second client asks for messages all
the time, and must get none. Nearly all of the time nothing happens, so it may run beside others.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ackd_torture.child import BrokerPart
from tests.bench.measure import machine
from tests.chaos.world import Http, KafkaAt, World, world
from tests.support.kafka import Kafka
from tests.support.paths import remove_run_dir, run_dir
from tests.support.pulsar import Pulsar
from tests.support.pulsar.part import PulsarAt
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt

BATCH_S = 60.0
LATE_SHARE = 0.85
Figures = dict[str, float | str]


def job(deployment: World, lease_ms: int, times: int) -> Figures:
    """One message, leased once, extended so often, acked; how often it was handed out."""
    client = Http(deployment.sidecar())
    status, answer = client.post(
        f"/v1/topics/{deployment.topic}/messages:batch", {"messages": [{"json": {"msg": "m"}}]}
    )
    if status not in (200, 201):
        raise RuntimeError(f"not published: {answer}")
    [message] = client.receive_until(bool, BATCH_S, most=1)
    began, others, slowest_s = time.monotonic(), 0, 0.0
    for _ in range(times):
        others += len(client.quiet(lease_ms * LATE_SHARE / 1000))
        asked = time.monotonic()
        said = client.settle([message["lease"]], "extend", lease_ms=lease_ms)
        slowest_s = max(slowest_s, time.monotonic() - asked)
        if said != ["extended"]:
            raise RuntimeError(f"{deployment.broker.name}: {said}")
    worked_s = time.monotonic() - began
    said = client.settle([message["lease"]])
    if said != ["acked"]:
        raise RuntimeError(f"{deployment.broker.name}: {said}")
    others += len(client.quiet(2 * lease_ms / 1000))
    return {
        "worked_s": round(worked_s, 1),
        "extended": times,
        "delivered": 1 + others,
        "slowest_extend_ms": round(slowest_s * 1000, 1),
    }


@contextlib.contextmanager
def kafka() -> Iterator[BrokerPart]:
    """A broker of its own."""
    with Kafka() as started:
        yield KafkaAt(started)


@contextlib.contextmanager
def pulsar() -> Iterator[BrokerPart]:
    """A broker of its own."""
    with Pulsar() as started:
        yield PulsarAt(started)


@contextlib.contextmanager
def rocketmq() -> Iterator[BrokerPart]:
    """A broker of its own."""
    with RocketMQ() as started:
        yield RocketMQAt(started)


BROKERS: dict[str, Callable[[], contextlib.AbstractContextManager[BrokerPart]]] = {
    "kafka": kafka,
    "pulsar": pulsar,
    "rocketmq": rocketmq,
}


def main() -> int:
    """Start brokers one after the other, work on all at once, print; 1 = delivered twice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(BROKERS))
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--lease-ms", type=int, default=10_000)
    given = parser.parse_args()
    names = given.only.split(",")
    folder = run_dir("long-lease")
    try:
        with contextlib.ExitStack() as stack:
            parts = [stack.enter_context(BROKERS[name]()) for name in names]
            worlds = []
            for part in parts:
                own = folder / part.name
                own.mkdir()
                worlds.append(stack.enter_context(world(part, own, lease_ms=given.lease_ms)))
            # The end of any world closes all clients, so all end together.
            with ThreadPoolExecutor(len(parts)) as pool:
                running = [pool.submit(job, each, given.lease_ms, given.times) for each in worlds]
            rows = {name: each.result() for name, each in zip(names, running, strict=True)}
    finally:
        remove_run_dir(folder)
    sys.stdout.write(json.dumps({"machine": machine(), **rows}, indent=2) + "\n")
    return int(any(row["delivered"] != 1 for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
