"""The ledger of a partition whose messages arrive in any order (`ackd.ports.own_acks`).

There is no position: a gap says nothing, because what is missing may be held back for a sidecar
that died. So no offset is finished but by its own ack, and the watermark stays below the first that
was not.
"""

from __future__ import annotations

from collections.abc import Iterable

from ackd.core.entry import B
from ackd.core.ledger import Ledger
from ackd.core.stuck import Rules


class Scattered(Ledger[B]):
    """`ended`: offsets finished since it was last taken; the broker has to be told of them."""

    def __init__(
        self, rules: Rules | None = None, deliveries_max: int = 0, *, carriers: bool = False
    ) -> None:
        super().__init__(rules, deliveries_max, carriers=carriers)
        self.ended: list[int] = []

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

    def _finish(self, offset: int) -> None:
        super()._finish(offset)
        self.ended.append(offset)

    def _fetch_again(self) -> None:
        """Nothing can be asked for: what is missing comes by itself."""
