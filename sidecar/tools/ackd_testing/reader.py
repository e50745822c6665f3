"""Takes a consumer's events as the engine would, keeps them, and checks each one on the way.

Checked always, whatever the test is about: batches are never empty; records belong to the session
that was asked for, grow in offset and lie past every end that was told (rule R7); nothing comes of
a partition that is not fetched or is paused; no partition is assigned twice without having been
taken away.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from ackd.core.ids import TopicPartition
from ackd.ports import (
    Assigned,
    Condition,
    Consumer,
    ConsumerEvent,
    EndReached,
    Fetched,
    Lost,
    OutOfRange,
    Record,
    Revoked,
    TopicReplaced,
)

E = TypeVar("E")
TAIL = 10


class Reader:
    """`until(condition)` takes events until it is true. `confirm`: answer revocations at once."""

    def __init__(self, consumer: Consumer, *, confirm: bool = True) -> None:
        self.consumer = consumer
        self.confirm = confirm
        self.events: list[ConsumerEvent] = []
        self.records: dict[TopicPartition, list[Record]] = defaultdict(list)
        self.assigned: set[TopicPartition] = set()
        self._sessions: dict[TopicPartition, int] = {}
        self._least: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._newest = 0

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """As the consumer's; forgets the records of the session before."""
        session = self.consumer.fetch_from(partition, offset)
        assert session > self._newest, "a session's number is larger than all before"
        self._newest = session
        self._sessions[partition] = session
        self._least[partition] = offset
        self._paused.discard(partition)
        self.records[partition] = []
        return session

    def stop_fetch(self, partition: TopicPartition) -> None:
        self.consumer.stop_fetch(partition)
        self._sessions.pop(partition, None)

    def pause(self, partition: TopicPartition) -> None:
        self.consumer.pause(partition)
        self._paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        self.consumer.resume(partition)

    def of(self, kind: type[E]) -> list[E]:
        """All events of a kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def offsets(self, partition: TopicPartition) -> list[int]:
        """Offsets of this partition's records since its last `fetch_from`."""
        return [record.offset for record in self.records[partition]]

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        """Values of this partition's records since its last `fetch_from`."""
        return [record.value for record in self.records[partition]]

    def ended(self, partition: TopicPartition, offset: int) -> bool:
        """Whether this partition's session has said that everything below `offset` is read."""
        session = self._sessions.get(partition)
        return any(
            (end.partition, end.session, end.offset) == (partition, session, offset)
            for end in self.of(EndReached)
        )

    def condition(self, code: str, *, cleared: bool = False) -> Condition | None:
        """The last condition whose code contains this, if it began or is over as asked."""
        found = [each for each in self.of(Condition) if code in each.code]
        return found[-1] if found and found[-1].cleared is cleared else None

    async def until(
        self, condition: Callable[[], object], what: str, timeout_s: float = 60.0
    ) -> None:
        """Take events until the condition is true; AssertionError past the bound."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self.take(await self.consumer.events())
        except TimeoutError:
            last = "\n  ".join(str(event)[:200] for event in self.events[-TAIL:])
            raise AssertionError(f"not within {timeout_s} s: {what}; last:\n  {last}") from None

    async def during(self, seconds: float) -> None:
        """Take events for so long: to show that something does not come."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self.take(await self.consumer.events())
        except TimeoutError:
            return

    def take(self, events: list[ConsumerEvent]) -> None:
        """Check a batch of events against what the port promises, and keep its records."""
        assert events, "a batch has at least one event"
        for event in events:
            self.events.append(event)
            match event:
                case Fetched():
                    self._fetched(event)
                case EndReached():
                    self._check_session(event.partition, event.session)
                    assert event.offset >= self._least[event.partition], "an end before its records"
                    self._least[event.partition] = event.offset
                case OutOfRange():
                    self._check_session(event.partition, event.session)
                case TopicReplaced(topic):
                    for partition in [each for each in self._sessions if each.topic == topic]:
                        del self._sessions[partition]
                case Assigned(partitions):
                    assert not self.assigned & set(partitions), "assigned twice"
                    self.assigned |= set(partitions)
                case Lost(partitions):
                    self.assigned -= set(partitions)
                case Revoked(partitions):
                    self.assigned -= set(partitions)
                    if self.confirm:
                        event.done()
                case _:
                    pass

    def _fetched(self, event: Fetched) -> None:
        partition = event.partition
        self._check_session(partition, event.session)
        assert partition not in self._paused, "records of a paused partition"
        assert event.records, "Fetched has at least one record"
        for record in event.records:
            least = self._least[partition]
            assert record.offset >= least, f"offset {record.offset} where {least} was next"
            self._least[partition] = record.offset + 1
        self.records[partition] += event.records

    def _check_session(self, partition: TopicPartition, session: int) -> None:
        assert self._sessions.get(partition) == session, f"stale: session {session} of {partition}"
