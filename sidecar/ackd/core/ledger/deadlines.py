"""What happens to messages by the passing of time alone."""

from __future__ import annotations

from typing import Generic, TypeGuard

from ackd.core.ledger.effects import Claim
from ackd.core.ledger.entry import TIMED, B, Entry, EntryStatus
from ackd.core.ledger.lifecycle import Lifecycle

LOOKED_AT_A_TICK = 64
"""Each tick adds this to a count. When the count reaches the number of entries, `tick` compares the
ledger's counts with its entries, so that a tick pays for this many on average."""


class Deadlines(Generic[B]):
    """Ends leases and delays, lets retry copies claim again, dead-letters messages that no
    application asks for.
    """

    __slots__ = ("_grace_until_ms", "_lapsed", "_life", "_unchecked")

    def __init__(self, life: Lifecycle[B]) -> None:
        self._life = life
        self._grace_until_ms = 0
        self._lapsed: dict[int, list[int]] = {}
        self._unchecked = 0

    def keep_until(self, grace_until_ms: int) -> None:
        """End no lease before this: the store was away, and the holder may have got a 503 (R23)."""
        self._grace_until_ms = grace_until_ms

    def tick(self, now_ms: int) -> int:
        """Make expired leases and due messages ready, and let retry copies claim again. Returns how
        many there were.
        """
        life, woken = self._life, 0
        entries = life.entries
        entries.clock.ticked_ms = now_ms
        for due_ms, offset in life.timers.passed(now_ms):
            entry = entries.by_offset.get(offset)
            if not self._waits(entry, due_ms):
                continue
            if entry.status is EntryStatus.READY:
                woken += self._end(offset, entry, now_ms)
                continue
            if entry.status is EntryStatus.CLAIMING:
                entry.due_ms = 0
                entries.effects.append(Claim(offset))
                woken += 1
                continue
            if entry.status is EntryStatus.LEASED:
                if now_ms < self._grace_until_ms:
                    entry.due_ms = self._grace_until_ms
                    life.timers.add(entry.due_ms, offset)
                    continue
                self._lapsed.setdefault(due_ms, []).append(offset)
            entries.uncount(entry)
            life.make_ready(offset, entry)
            woken += 1
        self._check()
        return woken

    def take_lapsed(self) -> dict[int, list[int]]:
        """The offsets whose leases ended, by moment, since the last call."""
        lapsed = self._lapsed
        if lapsed:
            self._lapsed = {}
        return lapsed

    def newly_due_ms(self) -> int | None:
        """The earliest moment that was added since the last call."""
        return self._life.timers.news()

    def next_due_ms(self) -> int | None:
        """When `tick` next has something to do. Drops stale timers as it looks."""
        by_offset, timers = self._life.entries.by_offset, self._life.timers
        while (first := timers.first()) is not None:
            due_ms, offsets = first
            for offset in offsets:
                if (entry := by_offset.get(offset)) is not None and self._waits(entry, due_ms):
                    return due_ms
            timers.drop_first()
        return None

    def _end(self, offset: int, entry: Entry[B], now_ms: int) -> bool:
        """A ready message's time may be over. Dead-letters it and returns True if so; else sets its
        timer again.
        """
        life = self._life
        clock, limits = life.entries.clock, life.limits
        clock.saw(now_ms + clock.skew_ms)
        if limits.out_of_time(entry):
            life.exhaust(offset, entry)
            return True
        entry.due_ms = now_ms + max(limits.end_ms(entry) - clock.seen_ms, 1)
        life.timers.add(entry.due_ms, offset)
        return False

    def _waits(self, entry: Entry[B] | None, due_ms: int) -> TypeGuard[Entry[B]]:
        """Whether the entry still waits for this very moment. Timers are never removed, so a timer
        may be stale.
        """
        if entry is None or entry.due_ms != due_ms:
            return False
        return entry.status in TIMED or (
            self._life.limits.message_ttl_ms > 0 and entry.status is EntryStatus.READY
        )

    def _check(self) -> None:
        entries = self._life.entries
        self._unchecked += LOOKED_AT_A_TICK
        if self._unchecked >= len(entries.by_offset):
            self._unchecked = 0
            for what in entries.mistakes():
                entries.mistaken(what)
