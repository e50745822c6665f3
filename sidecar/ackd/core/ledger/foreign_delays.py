"""Messages that come with a delay or with attempts of their own: others' clients put them off.

The broker's adapter tells of them (`ackd.ports.Delay`); the log has them as any other message. What
was told is written into the record (PLACE) before anybody may have the message. From then on the
record counts: the same message may be told of again, after a restart, and nothing comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ackd.core.ledger.claims import Carriers
from ackd.core.ledger.effects import PutOff
from ackd.core.ledger.entry import B, Entry, Hold
from ackd.core.record.protocol import Result
from ackd.core.record.transitions import Outcome, State

_NOT_HAD = frozenset({Hold.READY, Hold.GRANTING, Hold.WAITING})


class Delays(Carriers[B]):
    """Adds what is put off before its first hand-out here. `session`: see `Ledger`."""

    session: int

    def put_off(self, session: int, told: Iterable[tuple[int, int, int]]) -> None:
        """(offset, due time by the store's clock, deliveries elsewhere) of messages that the
        session is about to bring; before `fetched`. What has a slot already keeps it.

        In an ordered subscription nothing waits for its time: the order counts (I6).
        """
        if session != self.session:
            return
        news = []
        for offset, due_ms, attempts in told:
            waits = due_ms > self.seen_ms and self.turns is None
            known = offset < self.position or self.over(offset) or offset in self.entries
            if (waits or attempts) and not known:
                self._put_off(offset, attempts, due_ms if waits else 0)
                news.append(offset)
        self._place_them(news)

    def _put_off(self, offset: int, attempts: int, due_ms: int) -> None:
        entry: Entry[B] = Entry(None, Hold.PLACING)
        entry.attempt, entry.when_ms = attempts, due_ms
        self.entries[offset] = entry
        self._bodiless.add(offset)

    def _place_them(self, offsets: Iterable[int]) -> None:
        entries = self.entries
        rows = tuple((o, entries[o].attempt, entries[o].when_ms) for o in offsets)
        if rows:
            self._effects.append(PutOff(rows))

    def _put_off_again(self, before: dict[int, Entry[B]]) -> None:
        """The record was read again. What it does not have of this was on its way to it, or a
        rollback forgot it. A fence of 0 says that nobody had the message since. What seems to be
        due is written again, too: the store's clock decides, and the attempts count.
        """
        again = []
        for offset, old in before.items():
            written = old.first_s > 0 and not old.fence and old.hold in _NOT_HAD
            if (
                (written or old.hold is Hold.PLACING)
                and not self.over(offset)
                and offset not in self.entries
            ):
                self._put_off(offset, old.attempt, old.when_ms)
                again.append(offset)
        self._place_them(again)

    def claimed(self, offset: int, result: Result, rterm: int, store_ms: int, now_ms: int) -> None:
        """Also the answer to the PLACE of what was put off."""
        entry = self.entries.get(offset)
        if entry is None or entry.hold is not Hold.PLACING:
            super().claimed(offset, result, rterm, store_ms, now_ms)
        elif result.outcome is Outcome.FINISHED:
            self._finish(offset)
            self._advance()
        else:
            entry.fence, entry.rterm = result.fence, rterm
            entry.attempt, entry.first_s = result.attempt, result.first_s
            due = result.state is State.WAITING and result.when_ms <= store_ms
            state = State.READY if due else result.state
            self._hold(offset, entry, state, result.when_ms, store_ms, now_ms)
