"""Client-set delays: messages to which another client gave a delay, or attempts, of their own.

The broker's adapter reports them (`ackd.ports.Delay`); in the log they look like any other message.
The owner writes each delay into the record (PLACE_COPY) before it delivers the message. From then
on the record counts: if the adapter reports the same message again, after a restart, that has no
effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from ackd.core.ledger.effects import StoreForeignDelays
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import B, Entry, EntryStatus
from ackd.core.ledger.lifecycle import Lifecycle
from ackd.core.record.protocol import OpResult
from ackd.core.record.transitions import Outcome

_NOT_HAD = frozenset({EntryStatus.READY, EntryStatus.GRANTING, EntryStatus.WAITING})


class ForeignDelays(Generic[B]):
    """Holds delayed messages back before their first delivery here."""

    __slots__ = ("_entries", "_life")

    def __init__(self, entries: Entries[B], life: Lifecycle[B]) -> None:
        self._entries = entries
        self._life = life

    def reported(self, delays: Iterable[tuple[int, int, int]]) -> None:
        """Take (offset, due time in ms on the store's clock, deliveries elsewhere) of messages that
        will be fetched next. A message that has a slot already keeps it.

        An ordered subscription ignores the delays: the order counts (I6).
        """
        entries, news = self._entries, []
        for offset, due_ms, attempts in delays:
            waits = due_ms > entries.clock.seen_ms and self._life.order is None
            known = offset < entries.position or entries.over(offset) or offset in entries.by_offset
            if (waits or attempts) and not known:
                self._add(offset, attempts, due_ms if waits else 0)
                news.append(offset)
        self._place(news)

    def reread(self, before: dict[int, Entry[B]]) -> None:
        """The record was read again: write the delays again that it lacks. They had not reached it
        yet, or a rollback erased them. A fence of 0 shows that nobody got the message since. A
        delay that seems over is written again, too: the store's clock decides, and its attempts
        count.
        """
        entries, again = self._entries, []
        for offset, old in before.items():
            written = old.first_s > 0 and not old.fence and old.status in _NOT_HAD
            if (
                (written or old.status is EntryStatus.PLACING)
                and not entries.over(offset)
                and offset not in entries.by_offset
            ):
                self._add(offset, old.attempt, old.when_ms)
                again.append(offset)
        self._place(again)

    def placed(
        self, offset: int, result: OpResult, rollback_epoch: int, store_ms: int, now_ms: int
    ) -> None:
        """Apply the answer to PLACE_COPY for a message whose status is PLACING."""
        if result.outcome is Outcome.FINISHED:
            self._life.finish(offset)
            self._entries.advance()
        else:
            entry = self._entries.by_offset[offset]
            self._life.decided(offset, entry, result, rollback_epoch, store_ms, now_ms)

    def _add(self, offset: int, attempts: int, due_ms: int) -> None:
        entry: Entry[B] = Entry(None, EntryStatus.PLACING)
        entry.attempt, entry.when_ms = attempts, due_ms
        self._entries.add(offset, entry)

    def _place(self, offsets: Iterable[int]) -> None:
        by_offset = self._entries.by_offset
        rows = tuple((o, by_offset[o].attempt, by_offset[o].when_ms) for o in offsets)
        if rows:
            self._entries.effects.append(StoreForeignDelays(rows))
