"""A simulated broker that keeps an ack for each message, with the traps of RocketMQ 5 (R32).

It hands messages out under a hold. When that ends, the message becomes a copy at another place,
under its old id. Only the newest handle counts: an ack by an older one says OK and is worth
nothing, a change by one makes another copy, and one after the ack revives the message. After a
crash it goes back and has forgotten acks; it may lose the tail of a log, and use offsets again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from ackd_adapters.rocketmq.message import Taken
from tests.simulation.log import Cluster
from tests.simulation.world import MS, S, World

NAME: Final = "b"
TOPIC: Final = "orders"
FORGETS_MAX: Final = 30
"""So many messages it goes back at most, of each queue."""
FORGETS_US: Final = 2 * S
AT_ONCE_US: Final = 1 * MS


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A message in a queue's log."""

    id: str
    value: bytes
    queue: int
    offset: int
    stored_ms: int


@dataclass(slots=True, eq=False)
class Hold:
    """A message that somebody has until then. `copy`: its offset as a copy; -1: it is none."""

    message: Stored
    copy: int
    until_us: int


@dataclass(slots=True)
class Copy:
    """A message whose hold has ended."""

    message: Stored
    offset: int
    stored_ms: int


@dataclass(slots=True)
class Queue:
    """`next`: what the group gets next."""

    log: list[Stored] = field(default_factory=list)
    next: int = 0


class HeldCluster(Cluster):
    """One topic and one group on one broker. `hold_ms`: what clients ask for. `loses`: how likely
    it loses what a poll draws that is broken off. `gone`: values that went with a cut.
    """

    def __init__(self, world: World, queues: int, loses: float = 0.0) -> None:
        super().__init__(world)
        self.make(TOPIC, queues)
        self.queues = [Queue() for _ in range(queues)]
        self.loses = loses
        self.hold_ms = 4_000
        self.clock_us = 0
        self.booted_ms = self.now_ms()
        self.gone: set[bytes] = set()
        self.stored: list[bytes] = []
        self.lost = self.cuts = 0
        self._random: Random = world.random("held broker")
        self._holds: dict[str, Hold] = {}
        self._past: dict[str, Hold] = {}
        self._copies: list[Copy] = []
        self._copies_end = 0
        self._acked: list[tuple[int, Hold]] = []
        self._handles = 0

    def now_ms(self) -> int:
        """By the broker's own clock."""
        return (self.world.now_us + self.clock_us) // MS

    def store(self) -> None:
        """Somebody publishes a message."""
        value = b"message %d" % len(self.stored)
        queue = self._random.randrange(len(self.queues))
        log = self.queues[queue].log
        log.append(Stored(f"{len(self.stored):032X}", value, queue, len(log), self.now_ms()))
        self.stored.append(value)

    # --- what clients ask

    def draw(
        self, most: int, hold_us: int, passes: Callable[[bytes], bool], *, broken_off: bool
    ) -> list[Taken]:
        """Messages under a hold. `broken_off`: nobody gets them, the proxy gives them back at once,
        and some are lost.
        """
        self._expire()
        found: list[tuple[Stored, Copy | None]] = []
        while self._copies and len(found) < most:
            due = self._copies.pop(0)
            found.append((due.message, due))
        for queue in self.queues:
            while queue.next < len(queue.log) and len(found) < most:
                if passes(queue.log[queue.next].value):
                    found.append((queue.log[queue.next], None))
                queue.next += 1
        given = []
        for message, copy in found:
            if broken_off and self._random.random() < self.loses:
                self.world.note("broker", "loses", message.queue, message.offset)
                self.lost += 1
                continue
            after_us = AT_ONCE_US if broken_off else hold_us
            offset = -1 if copy is None else copy.offset
            handle = self._hold(message, offset, after_us)
            what = "broken off" if broken_off else "given"
            self.world.note("broker", what, message.value.decode(), "copy" * (offset >= 0), handle)
            stored_ms = message.stored_ms if copy is None else copy.stored_ms
            at = (0, offset) if offset >= 0 else (message.queue, message.offset)
            given.append(
                Taken(message.id, TOPIC, *at, handle, 1, message.value, stored_ms=stored_ms)
            )
        return given

    def _hold(self, message: Stored, copy: int, for_us: int) -> str:
        self._handles += 1
        handle = f"{self._handles} 0 0 0 {int(copy >= 0)} {NAME}"
        self._past[handle] = self._holds[handle] = Hold(message, copy, self.world.now_us + for_us)
        return handle

    def ack(self, handle: str) -> str:
        """Says OK in any case."""
        hold = self._holds.pop(handle, None)
        if hold is not None and hold.until_us > self.world.now_us:
            self.world.note("broker", "acked", hold.message.value.decode(), handle)
            self._acked.append((self.world.now_us, hold))
        elif hold is not None:
            self._holds[handle] = hold
        return "OK"

    def change(self, handle: str, for_us: int) -> str:
        """Returns the new handle. By one that does not count any more there is one more hold."""
        self._expire()
        self._holds.pop(handle, None)
        hold = self._past[handle]
        self.world.note("broker", "changed", hold.message.value.decode(), handle, for_us // MS)
        return self._hold(hold.message, hold.copy, for_us)

    def _expire(self) -> None:
        now_us = self.world.now_us
        for handle in [each for each, hold in self._holds.items() if hold.until_us <= now_us]:
            self._again(self._holds.pop(handle).message)

    def _again(self, message: Stored) -> None:
        """A copy, unless a cut has taken the message."""
        if message.value not in self.gone:
            self._copies.append(Copy(message, self._copies_end, self.now_ms()))
            self._copies_end += 1

    # --- what goes wrong

    def crash(self) -> None:
        """It is down, and has forgotten what it did in the last moments."""
        self.world.note("broker", "crashes")
        random, now_us = self._random, self.world.now_us
        for queue in self.queues:
            queue.next -= random.randint(0, min(queue.next, FORGETS_MAX))
        for handle, hold in list(self._holds.items()):
            back = hold.copy < 0 and hold.message.offset >= self.queues[hold.message.queue].next
            if back and random.random() < 0.5:
                del self._holds[handle]
        for at_us, hold in self._acked:
            if hold.copy >= 0 and now_us - at_us < FORGETS_US and random.random() < 0.5:
                self._again(hold.message)
        self._acked.clear()
        self.up = False
        self.world.after(random.randint(300, 3_000) * MS, self._up)

    def _up(self) -> None:
        self.up, self.booted_ms = True, self.now_ms()

    def cut(self, *, whole: bool = False) -> None:
        """A queue loses its last messages, and their offsets will be used again; `whole`: all of
        them lose all, as the topic is made again.
        """
        random = self._random
        chosen = self.queues if whole else [random.choice(self.queues)]
        for queue in chosen:
            keep = 0 if whole else random.randint(0, len(queue.log))
            self.world.note("broker", "loses its tail", self.queues.index(queue), "from", keep)
            self.gone |= {each.value for each in queue.log[keep:]}
            del queue.log[keep:]
            queue.next = min(queue.next, keep)
        self.cuts += 1
        self._copies = [each for each in self._copies if each.message.value not in self.gone]
        for handle, hold in list(self._holds.items()):
            if hold.message.value in self.gone:
                del self._holds[handle]
        self.crash()

    def reset(self) -> None:
        """An operator moves the group back, at the broker alone."""
        queue = self._random.choice(self.queues)
        queue.next = self._random.randint(0, queue.next)
        self.world.note("broker", "reset", self.queues.index(queue), "to", queue.next)

    def step_clock(self) -> None:
        """Its clock is set back, or ahead."""
        self.clock_us += self._random.choice([-20 * S, -2 * S, -300 * MS, 2 * S])
        self.world.note("broker", "clock", self.clock_us // MS, "ms")
