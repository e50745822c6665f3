"""Reads a consumer's events as the engine would, remembers them, and checks rule R7 on the way."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from ackd.core.ids import TopicPartition
from ackd.ports import (
    Consumer,
    ConsumerEvent,
    EndReached,
    Fetched,
    Lost,
    Nominated,
    Record,
    Revoked,
    Trouble,
)
from tests.support.wait import WaitTimeoutError

E = TypeVar("E")


class Reader:
    """`until(condition)` takes events until it is true. Revocations are confirmed by themselves.

    For every session that `fetch_from` of this class began: nothing lies before the offset asked
    for, offsets grow, and no record of another session comes under its number.
    """

    def __init__(self, consumer: Consumer, *, confirm: bool = True) -> None:
        self.consumer = consumer
        self.events: list[ConsumerEvent] = []
        self.records: dict[TopicPartition, list[Record]] = defaultdict(list)
        self.nominated: set[TopicPartition] = set()
        self.confirm = confirm
        self._next: dict[TopicPartition, tuple[int, int]] = {}

    def fetch_from(self, partition: TopicPartition, offset: int) -> int:
        """As the consumer's; forgets the records of the session before."""
        session = self.consumer.fetch_from(partition, offset)
        self._next[partition] = (session, offset)
        self.records[partition] = []
        return session

    def stop_fetch(self, partition: TopicPartition) -> None:
        """As the consumer's; any event after it is an error."""
        self.consumer.stop_fetch(partition)
        del self._next[partition]

    def of(self, kind: type[E]) -> list[E]:
        """All events of a kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def offsets(self, partition: TopicPartition) -> list[int]:
        """Offsets of the records of this partition's session."""
        return [record.offset for record in self.records[partition]]

    def ended(self, partition: TopicPartition, offset: int) -> bool:
        """Whether this partition's session has said that everything below `offset` is read."""
        session = self._next[partition][0]
        return any(
            end.partition == partition and end.session == session and end.offset == offset
            for end in self.of(EndReached)
        )

    def trouble(self, code: str, *, cleared: bool = False) -> Trouble | None:
        """The last trouble whose code contains this, if it began or is over as asked."""
        found = [each for each in self.of(Trouble) if code in each.code]
        return found[-1] if found and found[-1].cleared is cleared else None

    async def until(
        self, condition: Callable[[], object], what: str, timeout_s: float = 10.0
    ) -> None:
        """Take events until the condition is true."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self.take(await self.consumer.events())
        except TimeoutError:
            last = "\n  ".join(str(event)[:200] for event in self.events[-10:])
            raise WaitTimeoutError(f"not within {timeout_s} s: {what}; last:\n  {last}") from None

    async def during(self, seconds: float) -> None:
        """Take events for so long: to show that something does not come."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self.take(await self.consumer.events())
        except TimeoutError:
            return

    def take(self, events: list[ConsumerEvent]) -> None:
        """Look at a batch."""
        assert events, "a batch has at least one event"
        for event in events:
            self.events.append(event)
            match event:
                case Fetched():
                    self._check(event)
                    self.records[event.partition] += event.records
                case EndReached():
                    self._check_end(event)
                case Nominated(partitions):
                    assert not self.nominated & set(partitions), "nominated twice"
                    self.nominated |= set(partitions)
                case Lost(partitions):
                    self.nominated -= set(partitions)
                case Revoked(partitions):
                    self.nominated -= set(partitions)
                    if self.confirm:
                        event.done()
                case _:
                    pass

    def _check_end(self, event: EndReached) -> None:
        """Everything below the end has come already: nothing below it may follow."""
        assert event.partition in self._next, "the end of what nobody asked for"
        session, least = self._next[event.partition]
        assert event.session == session, "an end of another session"
        assert event.offset >= least, f"end {event.offset} after {least - 1}"
        self._next[event.partition] = (session, event.offset)

    def _check(self, event: Fetched) -> None:
        assert event.partition in self._next, "fetched what nobody asked for"
        session, least = self._next[event.partition]
        assert event.session == session, "a record of another session"
        assert event.records
        for record in event.records:
            assert record.offset >= least, f"offset {record.offset} after {least - 1}"
            least = record.offset + 1
        self._next[event.partition] = (session, least)
