"""The ledger of a partition whose messages arrive in any order (`ackd.ports.own_acks`).

There is no position: a gap says nothing, because what is missing may be held back for a sidecar
that died. So no offset is finished but by its own ack, and the watermark stays below the first that
was not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from ackd.core.ledger.entry import B
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.order import OrderPosition
from ackd.core.ledger.send_back import Rules

MARKS: Final = 60
"""So exact is the age of a gap: a sixtieth of the time that it is waited for."""


class UnorderedLedger(Ledger[B]):
    """Messages arrive one by one (`arrived`), and the broker is told of each that is finished."""

    def __init__(
        self,
        rules: Rules | None = None,
        deliveries_max: int = 0,
        *,
        copies: bool = False,
        give_up_ms: int = 0,
        place_of: Callable[[B], OrderPosition | None] | None = None,
    ) -> None:
        super().__init__(
            rules, deliveries_max, copies=copies, give_up_ms=give_up_ms, place_of=place_of
        )
        self._life.ended = []
        self._marks: deque[tuple[int, int]] = deque()

    def arrived(self, records: Iterable[B]) -> list[int]:
        """Messages that the broker handed over. Returns the offsets that are finished already.

        One whose body is here is passed over: the lease on it, or its turn, is what counts.
        """
        entries, again = self._entries, []
        for record in records:
            offset = record.offset
            entries.position = max(entries.position, offset + 1)
            if entries.over(offset):
                again.append(offset)
            else:
                self.intake.arrived(offset, record)
        return again

    def take_ended(self) -> list[int]:
        """Offsets finished since this was last asked; the broker has to be told of them."""
        taken = self._life.ended
        if not taken:
            return []
        self._life.ended = []
        return taken

    def lapse(self, now_ms: int, after_ms: int, *, steady: bool) -> int:
        """Finish gaps below what had come `after_ms` ago: a filter left them out, or they came as a
        copy, elsewhere. What is held or has a lease stays. Returns how many offsets lapsed.

        `steady` False: the broker was away. It may bring back what it had handed over shortly
        before that, so that waiting begins anew.
        """
        entries, marks = self._entries, self._marks
        if not steady:
            marks.clear()
        elif not marks or now_ms - marks[-1][0] >= after_ms // MARKS:
            marks.append((now_ms, entries.position))
        end = 0
        while marks and now_ms - marks[0][0] >= after_ms:
            end = marks.popleft()[1]
        lapsed, start = 0, entries.watermark
        known = sorted(offset for offset in entries.by_offset if start <= offset < end)
        for bound in (*known, end):
            lacking = bound - start - entries.finished.count_between(start, bound)
            if lacking > 0:
                entries.finish_range(start, bound, 0)
                lapsed += lacking
            start = bound + 1
        if lapsed:
            entries.advance()
        return lapsed

    def _fetch_again(self) -> None:
        """Nothing can be asked for: what is missing comes by itself."""
