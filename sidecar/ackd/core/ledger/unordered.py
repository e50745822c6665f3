"""The ledger of a partition whose messages arrive in any order (`ackd.ports.own_acks`).

There is no position: a gap says nothing, because what is missing may be held back for a sidecar
that died. So no offset is finished but by its own ack, and the watermark stays below the first that
was not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from ackd.core.ledger.entry import B
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.send_back import Rules

MARKS: Final = 60
"""So exact is the age of a gap: a sixtieth of the time that it is waited for."""


class Scattered(Ledger[B]):
    """`ended`: offsets finished since it was last taken; the broker has to be told of them."""

    def __init__(
        self, rules: Rules | None = None, deliveries_max: int = 0, *, carriers: bool = False
    ) -> None:
        super().__init__(rules, deliveries_max, carriers=carriers)
        self.ended: list[int] = []
        self._marks: deque[tuple[int, int]] = deque()

    def arrived(self, records: Iterable[B]) -> list[int]:
        """Messages that the broker handed over. Returns the offsets that are finished already.

        One whose body is here is passed over: the lease on it, or its turn, is what counts.
        """
        again: list[int] = []
        for record in records:
            offset = record.offset
            self.position = max(self.position, offset + 1)
            if offset < self.watermark or offset in self.finished:
                again.append(offset)
            else:
                self._arrived(offset, record)
        return again

    def take_ended(self) -> list[int]:
        """What was finished since the last time."""
        taken, self.ended = self.ended, []
        return taken

    def lapse(self, now_ms: int, after_ms: int, *, steady: bool) -> int:
        """Finish gaps below what had come `after_ms` ago: a filter left them out, or they came as a
        copy, elsewhere. What is held or has a lease stays. Returns how many offsets lapsed.

        `steady` False: the broker was away. It may bring back what it had handed over shortly
        before that, so that waiting begins anew.
        """
        marks = self._marks
        if not steady:
            marks.clear()
        elif not marks or now_ms - marks[-1][0] >= after_ms // MARKS:
            marks.append((now_ms, self.position))
        end = 0
        while marks and now_ms - marks[0][0] >= after_ms:
            end = marks.popleft()[1]
        lapsed, start = 0, self.watermark
        known = sorted(offset for offset in self.entries if start <= offset < end)
        for bound in (*known, end):
            lacking = bound - start - self.finished.count_between(start, bound)
            if lacking > 0:
                self._finish_range(start, bound, 0)
                lapsed += lacking
            start = bound + 1
        if lapsed:
            self._advance()
        return lapsed

    def _finish(self, offset: int) -> None:
        super()._finish(offset)
        self.ended.append(offset)

    def _fetch_again(self) -> None:
        """Nothing can be asked for: what is missing comes by itself."""
