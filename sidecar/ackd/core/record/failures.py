"""Failure reasons that applications reported: the first and the last of each unfinished message.

A part of a `PartitionRecord`; `store/errors.lua` decides the same. Reasons decide nothing about a
message. The call that settles stores them under the message's own offset, and the call that
finishes the message deletes them. A message that moves to the retry topic leaves them in the record
of its origin; its copy takes them into its own record when it has claimed (PLACE_COPY).
"""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.record.protocol import OpResult, RecordCall
from ackd.core.record.transitions import Outcome

ERROR_BYTES_MAX = 1_024
"""Bound on one reason; each message has two."""
ERRORS_MAX = 4_096
"""Messages of one partition with reasons. Reasons of further messages are not stored."""
KEPT = (Outcome.RETRYING, Outcome.DEAD, Outcome.DONE)
"""Outcomes with which a reason is stored: a failure counted, or (DONE) a copy got its slot."""


class Errors:
    """By offset: (first, last), UTF-8."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[bytes, bytes]] = {}
        self._over: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._of)

    def over(self, offset: int) -> None:
        """The current call finishes this message here."""
        self._over.add(offset)

    def clear(self) -> None:
        """The current call deletes all reasons."""
        self._of.clear()

    def decided(self, call: RecordCall, results: Sequence[OpResult]) -> None:
        """End a call: delete the reasons of finished messages, store those of the others."""
        for offset in self._over:
            self._of.pop(offset, None)
        for item, first, last in call.reasons:
            offset = call.ops[item].offset
            if results[item].outcome not in KEPT or offset in self._over:
                continue
            known = self._of.get(offset)
            if known is not None or len(self._of) < ERRORS_MAX:
                self._of[offset] = (first or last if known is None else known[0], last)
        self._over.clear()

    def get(self, offsets: Sequence[int]) -> list[tuple[bytes, bytes] | None]:
        """The reasons of these messages, None for those without."""
        return [self._of.get(offset) for offset in offsets]
