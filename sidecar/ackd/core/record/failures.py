"""What applications said of failures: of each unfinished message the first and the last.

A part of a record (`record`); `store/errors.lua` decides the same. They decide nothing about a
message. They are kept by the call that settles, under the message's own offset, and gone with the
call that finishes it. A message that is sent back keeps them in its home; its copy takes them over
into its own record when it has claimed that (PLACE).
"""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.record.protocol import OpResult, RecordCall
from ackd.core.record.transitions import Outcome

ERROR_BYTES_MAX = 1_024
"""Of one text; there are two for each message."""
ERRORS_MAX = 4_096
"""Messages of one partition with texts. Beyond it nothing is kept of further ones."""
KEPT = (Outcome.RETRYING, Outcome.DEAD, Outcome.DONE)
"""A failure counted, or (DONE) a copy is in its place."""


class Errors:
    """By offset: (first, last), UTF-8."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[bytes, bytes]] = {}
        self._over: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._of)

    def over(self, offset: int) -> None:
        """The call that is decided finishes this message here."""
        self._over.add(offset)

    def clear(self) -> None:
        """The call that is decided forgets them all."""
        self._of.clear()

    def decided(self, call: RecordCall, results: Sequence[OpResult]) -> None:
        """At the end of a call: what is over goes, what was said of the rest is kept."""
        for offset in self._over:
            self._of.pop(offset, None)
        for item, first, last in call.said:
            offset = call.ops[item].offset
            if results[item].outcome not in KEPT or offset in self._over:
                continue
            known = self._of.get(offset)
            if known is not None or len(self._of) < ERRORS_MAX:
                self._of[offset] = (first or last if known is None else known[0], last)
        self._over.clear()

    def get(self, offsets: Sequence[int]) -> list[tuple[bytes, bytes] | None]:
        """Of these, None where nothing was said."""
        return [self._of.get(offset) for offset in offsets]
