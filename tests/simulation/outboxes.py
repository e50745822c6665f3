"""What is accepted for later: it gets to the broker, in order, and doubles are told (I1, I6, R20).

The store's acceptances, what lands in the broker's log, and what publishers were told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ackd.api.messages import Accepted
from ackd.core.ids import TopicPartition, message_id
from ackd.core.outbox import EnqueueRequest, EnqueueResult, Outbox
from ackd.engine.publishing.outbox_codec import read_message, read_status
from tests.simulation.book import Book
from tests.simulation.plan import Story
from tests.simulation.world import MS, S, Violation, World

OUT: Final = "out"
PARTITIONS: Final = 2
LATE_US: Final = 15 * S
"""After the last fault: a takeover (4 s) and answers that never come, several times over."""
SETTINGS: Final = (("outbox", 1_000), ("stuck_ms", 0))
AWAY: Final = Story(("kill", "fuse", "net", "broker_net", "broker_down", "freeze"), SETTINGS)
"""Nothing that was accepted is forgotten."""
CUT: Final = Story(("cut", "net", "store_freeze"), SETTINGS)
"""Answers of the store are lost, while all sidecars live."""
FULL: Final = Story(AWAY.faults, (("outbox", 6), ("stuck_ms", 0)))
"""There is hardly any room."""
FORGOTTEN: Final = Story(("store_failover", "kill", "broker_net"), SETTINGS)
"""The store forgets what it was told."""

Lane = tuple[str, bytes | int]


@dataclass(slots=True, eq=False)
class Item:
    """A message that the store has accepted. `asked_async`: it never goes another way."""

    value: bytes
    number: int
    due_ms: int
    accepted_us: int
    lanes: tuple[Lane, ...]
    idempotency_key: bytes
    asked_async: bool
    landed_before: int

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in its lane."""
        return self.due_ms, self.number


@dataclass(slots=True)
class Deliveries:
    """Hears of acceptances, of what lands, and of answers. `asked`: values by how they are sent."""

    world: World
    book: Book
    asked: dict[bytes, bool] = field(default_factory=dict)
    items: dict[bytes, list[Item]] = field(default_factory=dict)
    landed: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict)
    lanes: dict[Lane, list[Item]] = field(default_factory=lambda: defaultdict(list))
    told: list[tuple[bytes, int, int]] = field(default_factory=list)

    # --- what happens

    def enqueued(
        self, requests: Sequence[EnqueueRequest], answers: Sequence[EnqueueResult]
    ) -> None:
        """The store has decided."""
        for enqueue, enqueued in zip(requests, answers, strict=True):
            if not enqueued.first or enqueued.replayed:
                continue
            for index, new_message in enumerate(enqueue.messages):
                message = read_message(new_message.body)
                value = message.value or b""
                lanes: list[Lane] = []
                if message.key is not None:
                    lanes.append((message.topic, message.key))
                if message.partition is not None:
                    lanes.append((message.topic, message.partition))
                due_ms = enqueued.now_ms + new_message.delay_ms
                self._accepted(
                    Item(
                        value,
                        enqueued.first + index,
                        due_ms,
                        self.world.now_us,
                        tuple(lanes),
                        enqueue.idempotency_key,
                        self.asked.get(value, False),
                        len(self.landed.get(value, ())),
                    )
                )

    def _accepted(self, item: Item) -> None:
        self.world.note("outbox", "accepted", item.number, item.value.decode(), item.due_ms)
        before = self.items.setdefault(item.value, [])
        if (
            item.asked_async
            and item.idempotency_key
            and any(not self.lost(each) for each in before)
        ):
            self.world.fail(f"R20: {item.value.decode()} accepted twice under one key")
        before.append(item)
        for lane in item.lanes:
            self.lanes[lane].append(item)

    def answered(self, value: bytes, accepted: Accepted) -> None:
        """A publisher was told the number of its message."""
        items = self.items.get(value, ())
        if all(item.number != accepted.number for item in items):
            self.world.fail(f"I1: {value.decode()} told as {accepted.id}, which is another one")

    def arrived(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """Something is in the log now."""
        self.world.note("broker", "stored", value.decode(), tp.partition, offset)
        if value not in self.asked:
            self.world.fail(f"I1: {value.decode()} was never published")
        places = self.landed.setdefault(value, [])
        places.append((tp.partition, offset))
        if len(places) == 1 and self.asked.get(value):
            for item in self.items.get(value, ()):
                self._in_turn(item)

    def _in_turn(self, item: Item) -> None:
        """I6: what comes before it in its lane has come before."""
        if any(map(self.lost, self.items[item.value])):
            return
        for lane in item.lanes:
            for other in self.lanes[lane]:
                late = other.asked_async and other.value not in self.landed
                if late and other.place < item.place and not self._unknown(other, item):
                    names = f"{item.value.decode()} came before {other.value.decode()}"
                    self.world.fail(f"I6: {names} of its lane {lane}")

    def _unknown(self, other: Item, item: Item) -> bool:
        """It was forgotten, or came after a failover, with a clock that was set back by it."""
        later = other.accepted_us > item.accepted_us
        between = [each.at_us for each in self.book.rollbacks if each.at_us > item.accepted_us]
        return self.lost(other) or (later and any(at < other.accepted_us for at in between))

    def lost(self, item: Item) -> bool:
        """The store has forgotten that it was accepted."""
        rolled_back = self.book.rolled_back(item.accepted_us, self.world.now_us)
        return rolled_back is not None or self.book.flushed_since(item.accepted_us)

    # --- what should be

    def waiting(self) -> list[Item]:
        """Accepted, not forgotten, and not with the broker."""
        items = [item for each in self.items.values() for item in each]
        return [
            item
            for item in items
            if len(self.landed.get(item.value, ())) <= item.landed_before and not self.lost(item)
        ]

    def late(self, now_ms: int, since_us: int) -> None:
        """I5: nothing waits long after its time when nothing is in the way. `now_ms`: the store's
        clock, `since_us`: when the last fault was over.
        """
        now_us = self.world.now_us
        for item in self.waiting():
            over_us = min(now_us - max(since_us, item.accepted_us), (now_ms - item.due_ms) * MS)
            if over_us > LATE_US:
                over = f"{over_us // S} s after its time"
                self.world.fail(f"I5: {item.value.decode()} ({item.number}) is not sent {over}")

    def judge(self, outboxes: Mapping[str, Outbox]) -> None:
        """Everything has its end. Raises Violation."""
        for item in self.waiting():
            raise Violation(f"I1: {item.value.decode()} was accepted and is never sent")
        for value, partition, offset in self.told:
            if (partition, offset) not in self.landed.get(value, ()):
                raise Violation(f"I1: {value.decode()} was told as stored and is not there")
        for outbox in outboxes.values():
            if outbox.flight or outbox.waiting or outbox.failed:
                raise Violation(f"I8: {len(outbox.items)} messages are left in the outbox")
            if not self.book.rollbacks and not self.book.flushed_us:
                self._honest(outbox)

    def _honest(self, outbox: Outbox) -> None:
        """R20: what may be there twice says so."""
        for value, items in self.items.items():
            for item in items:
                if len(items) > 1 or not item.asked_async or item.number not in outbox.results:
                    continue
                said = read_status("broker", item.number, outbox.status(item.number))
                places = self.landed[value]
                if len(places) > 1 and not said.in_doubt:
                    raise Violation(f"R20: {value.decode()} is there {len(places)} times, untold")
                if said.message not in [message_id(OUT, *each) for each in places]:
                    raise Violation(f"I1: {value.decode()} is not at {said.message}")
