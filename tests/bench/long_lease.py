"""A job of five minutes under a lease of 10 s, on Kafka, Pulsar, RocketMQ and the local queue at
once, by hand.

    python -m tests.bench.long_lease [--only kafka,pulsar,rocketmq,local] [--times 30]
        [--lease-ms 10000] [--restart]

Each lease is extended when a seventh of it is left, at whichever of two sidecars answers, as
applications do. Meanwhile other clients ask both for messages all the time, and must get none.
Nearly all of the time nothing happens, so it may run beside others. `--restart`: in between each
sidecar, the store and the broker are killed with -9 and started again, one after the other, evenly
over the time and twice if there are so many extensions. `--times 4` is the shortest with all four.
The local queue has no process: it lives in the sidecars.
"""

import argparse
import contextlib
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from ackd_torture.child import BrokerPart, Part
from ackd_torture.parts import LocalQueue, Sidecar
from tests.bench.measure import machine
from tests.chaos.world import Http, KafkaAt, World, decided, world
from tests.support.kafka import Kafka
from tests.support.paths import remove_run_dir, run_dir
from tests.support.pulsar import Pulsar
from tests.support.pulsar.part import PulsarAt
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt

BATCH_S = 60.0
DECIDED_S = 60.0
"""A store that is killed comes back within this, and expiry waits meanwhile (I4)."""
LATE_SHARE = 0.85
ROUNDS_MAX = 2
Figures = dict[str, float | str]


class Asking:
    """Asks two sidecars for messages in a thread of its own, so that extensions are on time."""

    def __init__(self, sidecars: Sequence[Sidecar], message: str) -> None:
        self.again = 0
        self._clients = [Http(each) for each in sidecars]
        self._message = message
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        """A publish of unknown outcome may have left another message."""
        for client in itertools.cycle(self._clients):
            if self._over.is_set():
                return
            found = client.receive(wait_ms=300)
            self.again += sum(each["id"] == self._message for each in found)
            time.sleep(0.01)  # an answer without waiting must not make this a busy loop


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
    sidecars = [deployment.sidecar(name) for name in ("s1", "s2")]
    clients = [Http(each) for each in sidecars]
    publish(clients[0], deployment.topic)
    [message] = clients[0].receive_until(bool, BATCH_S, most=1)
    leased = time.monotonic()
    assert deployment.store is not None
    parts: list[Part] = [*sidecars, deployment.store]
    if not isinstance(deployment.broker, LocalQueue):
        parts.append(deployment.broker)
    plan = planned(len(parts), times) if restart else {}
    items = [{"lease": message["lease"], "do": "extend", "lease_ms": lease_ms}]
    began, count, slowest_s = leased, 0, 0.0
    begun: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool, Asking(sidecars, message["id"]) as asking:
        while count < times or not all(each.done() for each in begun):
            if count in plan:
                begun.append(pool.submit(restarted, parts[plan[count]]))
            time.sleep(max(leased + lease_ms * LATE_SHARE / 1000 - time.monotonic(), 0))
            leased = time.monotonic()
            said, _ = decided(clients, items, DECIDED_S)
            slowest_s = max(slowest_s, time.monotonic() - leased)
            if said != ["extended"]:
                raise RuntimeError(f"{deployment.broker.name}, after {count}: {said}")
            count += 1
        for each in begun:
            each.result()
        worked_s = time.monotonic() - began
        said, tries = decided(clients, [{"lease": message["lease"], "do": "ack"}], DECIDED_S)
        if said != ["acked"] and not (tries and said == ["already_acked"]):
            raise RuntimeError(f"{deployment.broker.name}: {said}")
        time.sleep(2 * lease_ms / 1000)
    return {
        "worked_s": round(worked_s, 1),
        "extended": count,
        "killed_and_started": len(begun),
        "delivered": 1 + asking.again,
        "slowest_extend_ms": round(slowest_s * 1000, 1),
    }


def planned(parts: int, times: int) -> dict[int, int]:
    """Before which extension which part is restarted: each in turn, evenly over the time."""
    every = max(1, times // (parts * ROUNDS_MAX))
    count = min(parts * ROUNDS_MAX, times // every)
    return {number * every: number % parts for number in range(count)}


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


@contextlib.contextmanager
def local() -> Iterator[BrokerPart]:
    """A folder of its own."""
    folder = run_dir("long-lease-queue")
    try:
        yield LocalQueue(folder, partitions=1)
    finally:
        remove_run_dir(folder)


BROKERS: dict[str, Callable[[], contextlib.AbstractContextManager[BrokerPart]]] = {
    "kafka": kafka,
    "pulsar": pulsar,
    "rocketmq": rocketmq,
    "local": local,
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
