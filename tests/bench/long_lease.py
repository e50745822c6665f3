"""A job of five minutes under a lease of 10 s, on Kafka, Pulsar and RocketMQ at once, by hand.

    python -m tests.bench.long_lease [--only kafka,pulsar,rocketmq] [--times 30] [--lease-ms 10000]
        [--restart]

Each lease is extended when a seventh of it is left. Meanwhile a second client asks for messages all
the time, and must get none. Nearly all of the time nothing happens, so it may run beside others.
`--restart`: in between the sidecar, the store and the broker are each killed with -9 and started
again, twice, one after the other.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ackd_torture.child import BrokerPart, Part
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


def extend(client: Http, lease: str, lease_ms: int) -> float:
    """Extend it, asking again while something restarts; the seconds that this took."""
    asked = time.monotonic()
    items = [{"lease": lease, "do": "extend", "lease_ms": lease_ms}]
    status, answer = client.post("/v1/settle", {"items": items})
    while status in (0, 503) and time.monotonic() - asked < lease_ms / 1000:
        time.sleep(0.05)
        status, answer = client.post("/v1/settle", {"items": items})
    if status != 200 or answer["results"][0]["status"] != "extended":
        raise RuntimeError(f"{client.sidecar.name}: {status} {answer}")
    return time.monotonic() - asked


def publish(client: Http, topic: str) -> None:
    """One message, at a broker that may be too busy at first."""
    end = time.monotonic() + BATCH_S
    body = {"messages": [{"json": {"msg": "m"}}]}
    status, answer = client.post(f"/v1/topics/{topic}/messages:batch", body)
    while status not in (200, 201):
        if time.monotonic() > end:
            raise RuntimeError(f"not published: {answer}")
        time.sleep(0.5)
        status, answer = client.post(f"/v1/topics/{topic}/messages:batch", body)


def restarted(part: Part) -> None:
    """Kill it with -9 and start it again."""
    part.kill()
    part.start()


def job(deployment: World, lease_ms: int, times: int, *, restart: bool) -> Figures:
    """One message, leased once, extended so often, acked; how often it was handed out."""
    sidecar = deployment.sidecar()
    client = Http(sidecar)
    publish(client, deployment.topic)
    [message] = client.receive_until(bool, BATCH_S, most=1)
    began, again, slowest_s = time.monotonic(), 0, 0.0

    def ask(seconds: float) -> int:
        """How often it comes meanwhile; a publish of unknown outcome may have left another one."""
        return sum(each["id"] == message["id"] for each in client.quiet(seconds))

    assert deployment.store is not None
    parts: tuple[Part, ...] = (sidecar, deployment.store, deployment.broker)
    begun: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:
        for number in range(times):
            if restart and number % 5 == 2:
                begun.append(pool.submit(restarted, parts[len(begun) % len(parts)]))
            again += ask(lease_ms * LATE_SHARE / 1000)
            slowest_s = max(slowest_s, extend(client, message["lease"], lease_ms))
        worked_s = time.monotonic() - began
        said = client.settle([message["lease"]])
        if said != ["acked"]:
            raise RuntimeError(f"{deployment.broker.name}: {said}")
        for each in begun:
            each.result()
    again += ask(2 * lease_ms / 1000)
    return {
        "worked_s": round(worked_s, 1),
        "extended": times,
        "killed_and_started": len(begun),
        "delivered": 1 + again,
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
    parser.add_argument("--restart", action="store_true")
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
                running = [
                    pool.submit(job, each, given.lease_ms, given.times, restart=given.restart)
                    for each in worlds
                ]
            rows = {name: each.result() for name, each in zip(names, running, strict=True)}
    finally:
        remove_run_dir(folder)
    sys.stdout.write(json.dumps({"machine": machine(), **rows}, indent=2) + "\n")
    return int(any(row["delivered"] != 1 for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
