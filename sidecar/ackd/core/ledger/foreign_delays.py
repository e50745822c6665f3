"""Messages that come with a delay or with attempts of their own: others' clients put them off.

The broker's adapter tells of them (`ackd.ports.Delay`); the log has them as any other message. What
was told is written into the record (PLACE) before anybody may have the message. From then on the
record counts: the same message may be told of again, after a restart, and nothing comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from ackd.core.ledger.effects import PutOff
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import B, Entry, EntryStatus
from ackd.core.ledger.lifecycle import Lifecycle
from ackd.core.record.protocol import OpResult
from ackd.core.record.transitions import Outcome

_NOT_HAD = frozenset({EntryStatus.READY, EntryStatus.GRANTING, EntryStatus.WAITING})


class ForeignDelays(Generic[B]):
    """What is put off before its first hand-out here."""

    __slots__ = ("_entries", "_life")

    def __init__(self, entries: Entries[B], life: Lifecycle[B]) -> None:
        self._entries = entries
        self._life = life

    def put_off(self, told: Iterable[tuple[int, int, int]]) -> None:
        """(offset, due time by the store's clock, deliveries elsewhere) of messages that are about
        to be fetched. What has a slot already keeps it.

        In an ordered subscription nothing waits for its time: the order counts (I6).
        """
        entries, news = self._entries, []
        for offset, due_ms, attempts in told:
            waits = due_ms > entries.clock.seen_ms and self._life.order is None
            known = offset < entries.position or entries.over(offset) or offset in entries.by_offset
            if (waits or attempts) and not known:
                self._add(offset, attempts, due_ms if waits else 0)
                news.append(offset)
        self._place(news)

    def reread(self, before: dict[int, Entry[B]]) -> None:
        """The record was read again. What it does not have of this was on its way to it, or a
        rollback forgot it. A fence of 0 says that nobody had the message since. What seems to be
        due is written again, too: the store's clock decides, and the attempts count.
        """
        entries, again = self._entries, []
        for offset, old in before.items():
            written = old.first_s > 0 and not old.fence and old.hold in _NOT_HAD
            if (
                (written or old.hold is EntryStatus.PLACING)
                and not entries.over(offset)
                and offset not in entries.by_offset
            ):
                self._add(offset, old.attempt, old.when_ms)
                again.append(offset)
        self._place(again)

    def placed(self, offset: int, result: OpResult, rterm: int, store_ms: int, now_ms: int) -> None:
        """The answer to PLACE, of a message whose status is PLACING."""
        if result.outcome is Outcome.FINISHED:
            self._life.finish(offset)
            self._entries.advance()
        else:
            entry = self._entries.by_offset[offset]
            self._life.decided(offset, entry, result, rterm, store_ms, now_ms)

    def _add(self, offset: int, attempts: int, due_ms: int) -> None:
        entry: Entry[B] = Entry(None, EntryStatus.PLACING)
        entry.attempt, entry.when_ms = attempts, due_ms
        self._entries.add(offset, entry)

    def _place(self, offsets: Iterable[int]) -> None:
        by_offset = self._entries.by_offset
        rows = tuple((o, by_offset[o].attempt, by_offset[o].when_ms) for o in offsets)
        if rows:
            self._entries.effects.append(PutOff(rows))
