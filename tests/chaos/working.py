"""Messages come evenly and workers beside every sidecar ack them at once: what a stop of one
sidecar costs them is seen as a gap.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ackd_torture.parts import Sidecar
from tests.chaos.world import Http, decided
from tests.support.starved import Starved

PUBLISH_S = 0.01
ACKED_S = 20.0


@dataclass
class Work:
    """What happened. `came`: when each message was delivered, and beside which sidecar;
    `statuses`: of the receives beside each; `published`: messages that are surely in the topic.
    """

    came: list[tuple[float, str, str]] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    published: int = 0
    statuses: list[tuple[float, str, int]] = field(default_factory=list)
    starved: Starved = field(default_factory=Starved)
    _over: threading.Event = field(default_factory=threading.Event)

    def worker(self, sidecar: Sidecar, others: Sequence[Sidecar]) -> None:
        """Long polls, one message at a time, acked at once."""
        clients = [Http(each, timeout_s=30) for each in (sidecar, *others)]
        client = clients[0]
        while not self._over.is_set():
            status, answer = client.post(
                "/v1/subscriptions/orders/receive", {"max": 1, "wait_ms": 500}
            )
            now = time.monotonic()
            self.statuses.append((now, sidecar.name, status))
            if status != 200:
                time.sleep(0.02)
                continue
            for message in answer["messages"]:
                self.came.append((now, sidecar.name, str(message["id"])))
                self.settled += _acked(clients, message)
        for each in clients:
            each.close()

    def publisher(self, sidecars: Sequence[Sidecar], topic: str) -> None:
        """A message every 10 ms, at any sidecar."""
        clients = [Http(each, timeout_s=30) for each in sidecars]
        path, due, number = f"/v1/topics/{topic}/messages", time.monotonic(), 0
        while not self._over.is_set():
            due, number = due + PUBLISH_S, number + 1
            for client in clients:
                if client.post(path, {"n": number})[0] == 201:
                    self.published += 1
                    break
            time.sleep(max(due - time.monotonic(), 0))
        for client in clients:
            client.close()

    def gap_s(self, begin_s: float, end_s: float, name: str = "") -> tuple[float, float]:
        """The longest time without a delivery in this interval (beside one sidecar), and how much
        of it this process starved.
        """
        times = sorted(
            at for at, who, _ in self.came if begin_s <= at <= end_s and name in ("", who)
        )
        marks = [begin_s, *times, end_s]
        gap, begin = max((b - a, a) for a, b in itertools.pairwise(marks))
        return gap, self.starved.within(begin, begin + gap)

    def beside(self, name: str, begin_s: float, end_s: float) -> list[int]:
        """The statuses of receives beside a sidecar in this interval."""
        return [s for at, who, s in self.statuses if who == name and begin_s <= at <= end_s]


def _acked(clients: Sequence[Http], message: Mapping[str, Any]) -> list[str]:
    """What the ack is told, beside the worker's sidecar or, if that does not say, at another one.

    One that was asked for before without an answer, or with a 503, may have counted then.
    """
    items = [{"lease": message["lease"], "do": "ack"}]
    found, tries = decided(clients, items, ACKED_S)
    return ["acked" if tries and each == "already_acked" else each for each in found]


@contextlib.contextmanager
def working(sidecars: Sequence[Sidecar], topic: str) -> Iterator[Work]:
    """A worker beside each sidecar, and a publisher that goes to another one if need be."""
    work = Work()
    over = work._over
    threads = [
        threading.Thread(target=work.worker, args=(each, [o for o in sidecars if o is not each]))
        for each in sidecars
    ]
    threads.append(threading.Thread(target=work.publisher, args=(sidecars, topic)))
    with work.starved.watched():
        for each in threads:
            each.start()
        try:
            yield work
        finally:
            over.set()
            for each in threads:
                each.join()
