"""The ledger of a partition whose messages arrive in any order (`ackd.ports.broker_side_acks`).

There is no fetch position. A gap proves nothing, because the broker may hold the missing message
back for a sidecar that died. So only its own ack finishes an offset, and the watermark stays at the
first offset without one (but see `UnorderedLedger.lapse`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ackd.core.ledger.entry import B
from ackd.core.ledger.ledger import Ledger
from ackd.core.ledger.order import OrderPosition
from ackd.core.ledger.send_back import Rules

MARKS: Final = 60
"""The age of a gap is exact to this fraction (a sixtieth) of the time that `lapse` waits for it."""


class UnorderedLedger(Ledger[B]):
    """For messages that arrive in any order (`arrived`); the broker gets an ack for each one."""

    def __init__(
        self,
        rules: Rules | None = None,
        deliveries_max: int = 0,
        *,
        copies: bool = False,
        message_ttl_ms: int = 0,
        position_of: Callable[[B], OrderPosition | None] | None = None,
    ) -> None:
        super().__init__(
            rules,
            deliveries_max,
            copies=copies,
            message_ttl_ms=message_ttl_ms,
            position_of=position_of,
        )
        self._life.ended = []
        self._marks: deque[tuple[int, int]] = deque()

    def arrived(self, records: Iterable[B]) -> list[int]:
        """Take messages that the broker delivered. Returns the offsets that are finished already.

        Ignores a message whose body is in memory already: its lease or its place in the order
        counts.
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
        """The offsets finished since the last call, to be acked at the broker."""
        taken = self._life.ended
        if not taken:
            return []
        self._life.ended = []
        return taken

    def lapse(self, now_ms: int, after_ms: int, *, steady: bool) -> int:
        """Finish gaps below the highest offset that had arrived `after_ms` ago: a filter left those
        messages out, or they came as copies elsewhere. Keeps every message that is in memory or has
        a lease. Returns how many offsets lapsed.

        `steady` False: the broker was away. It may deliver again what it had delivered shortly
        before that, so the wait starts again.
        """
        entries, marks = self._entries, self._marks
        if not steady:
            marks.clear()
        elif not marks or now_ms - marks[-1][0] >= after_ms // MARKS:
            marks.append((now_ms, entries.position))
        end = 0
        while marks and now_ms - marks[0][0] >= after_ms:
            end = marks.popleft()[1]
        return self.pass_over(0, end)

    def pass_over(self, start: int, end: int) -> int:
        """Finish the gaps in [start, end): the broker will not deliver what is missing there. Keeps
        every message that is in memory or has a lease. Returns how many offsets that were.
        """
        entries = self._entries
        lapsed = 0
        for first, bound in self._apart(start, end):
            lacking = bound - first - entries.finished.count_between(first, bound)
            if lacking > 0:
                entries.finish_range(first, bound, 0)
                lapsed += lacking
        if lapsed:
            entries.advance()
        return lapsed

    def missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges in [start, end), in their order, that are unfinished and not in memory: gaps,
        and what is leased or waits and was not brought. The ledger must not change meanwhile.
        """
        finished = self._entries.finished
        for first, bound in self._apart(start, end, in_memory=True):
            at = first
            for over, then in finished.ranges(first):
                if over >= bound:
                    break
                if at < over:
                    yield at, over
                at = then
            if at < bound:
                yield at, bound

    def lacks(self, offset: int) -> bool:
        """Whether this message is unfinished and not in memory."""
        entry = self._entries.by_offset.get(offset)
        return not self._entries.over(offset) and (entry is None or entry.body is None)

    def _apart(self, start: int, end: int, *, in_memory: bool = False) -> list[tuple[int, int]]:
        """The ranges between the known messages in [start, end), above the watermark.
        `in_memory`: only those in memory count as known.
        """
        entries = self._entries
        start = max(start, entries.watermark)
        known = sorted(
            offset
            for offset, entry in entries.by_offset.items()
            if start <= offset < end and not (in_memory and entry.body is None)
        )
        starts = [start, *(offset + 1 for offset in known)]
        return [each for each in zip(starts, [*known, end], strict=True) if each[0] < each[1]]

    def _fetch_again(self) -> None:
        """Does nothing: this broker can't be asked for a message, it delivers by itself."""
