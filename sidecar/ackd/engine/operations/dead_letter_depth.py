"""Where the dead letters of one subscription lie that were neither redriven nor purged.

The topic does not say that: a dead letter that is gone stays in it, and the store keeps that it is
gone. So the topic is read once, and the store is asked regularly which letters are still there.
"""

from __future__ import annotations

from collections.abc import Callable

from ackd.core.record.transitions import State
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.engine.retry.dead_letter_reader import DeadLetterLog

LOOK_MS = 5_000
"""A look that takes longer goes on in the next one."""
AT_ONCE = 500
KEPT_MAX = 100_000
"""Most letters of a subscription that are counted (I8)."""


class DeadLetterDepth:
    """The letters by partition and offset, each with the time at which it was dead-lettered (Unix
    ms). `more`: the topic goes on after those that are counted.
    """

    def __init__(self, records: DeadLetterRecords, now_ms: Callable[[], int]) -> None:
        self._records = records
        self._now_ms = now_ms
        self._topic_id = b""
        self._letters: dict[int, dict[int, int]] = {}
        self._unreadable: dict[int, set[int]] = {}
        self._read_to: dict[int, int] = {}
        self.more = False

    def count(self) -> int:
        return sum(map(len, self._letters.values()))

    def unreadable(self) -> int:
        """How many records are no dead letters, of any subscription."""
        return sum(map(len, self._unreadable.values()))

    def oldest_ms(self) -> int | None:
        """When the oldest was dead-lettered; None without one."""
        times = (min(each.values()) for each in self._letters.values() if each)
        return min(times, default=None)

    def forget(self) -> None:
        """Begin anew with the next look."""
        self._topic_id, self._letters, self._unreadable, self._read_to = b"", {}, {}, {}

    async def look(self, log: DeadLetterLog) -> bool:
        """Read what came, and forget what went. Returns whether it got to the end. Raises
        BrokerError, StoreError.
        """
        until_ms = self._now_ms() + LOOK_MS
        topic_id = b"" if log.info is None else log.topic_id
        if topic_id != self._topic_id:
            self.forget()
            self._topic_id = topic_id
        self.more = False
        return all([await self._partition(log, each, until_ms) for each in log.partitions])

    async def _partition(self, log: DeadLetterLog, partition: int, until_ms: int) -> bool:
        first, end = await log.range(partition)
        letters = self._letters.setdefault(partition, {})
        for gone in [offset for offset in letters if offset < first]:  # by the topic's retention
            del letters[gone]
        unreadable = {each for each in self._unreadable.get(partition, ()) if each >= first}
        self._unreadable[partition] = unreadable
        at = max(first, self._read_to.get(partition, 0))
        while at < end and self.count() < KEPT_MAX and self._now_ms() < until_ms:
            found, at = await log.read(partition, at, end, AT_ONCE)
            letters.update({each.record.offset: each.record.timestamp_ms for each in found})
            unreadable.update(log.unreadable[: KEPT_MAX - self.unreadable()])
            self._read_to[partition] = at
        offsets = list(letters)
        for start in range(0, len(offsets), AT_ONCE):
            some = offsets[start : start + AT_ONCE]
            states = await self._records.states(log.key(partition), some)
            for offset, state in zip(some, states, strict=True):
                if state is State.FINISHED:
                    del letters[offset]
        full = at < end and self.count() >= KEPT_MAX
        self.more = self.more or full
        return at >= end or full
