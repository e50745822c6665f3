"""The deliveries of a message, as operators see them."""

from __future__ import annotations

from dataclasses import dataclass

OPEN, NO_ANSWER = "open", "no_answer"


@dataclass(slots=True)
class PastDelivery:
    """One delivery of a message. `at_ms`, `ended_ms`: Unix time, None = not known, or not ended.

    `holder`: who got it. `end`: the answer to the settle that ended it (retrying, released, dead),
    with its `reason`; or open: somebody holds the lease; or no_answer: the lease ran out, or nobody
    got it.
    """

    attempt: int
    holder: str = ""
    at_ms: int | None = None
    end: str = NO_ANSWER
    ended_ms: int | None = None
    reason: str = ""

    def ended(self, end: str, ended_ms: int | None, reason: str) -> None:
        """A settle has ended it."""
        self.end, self.ended_ms, self.reason = end, ended_ms, reason

    def goes_on(self) -> None:
        """Somebody holds its lease."""
        self.end = OPEN
