"""Remember what is wrong with the servers, and log each change once.

A server that refuses writes (no memory, no disk, a replica) still answers reads, and words its
refusal differently for each script. So only a successful write ends a refusal, and refusals are
compared by their codes.
"""

from __future__ import annotations

import logging

from ackd.errors import StoreError
from ackd.ports import Condition

LOG = logging.getLogger("ackd.store")

REFUSALS = ("MISCONF", "NOREPLICAS", "READONLY", "OOM")
"""Codes of a server that refuses writes."""


class Away:
    """Is true while a server refuses or does not answer. `condition`: what readiness shows then."""

    def __init__(self) -> None:
        self.condition: Condition | None = None
        self._state = ""

    def __bool__(self) -> bool:
        return self.condition is not None

    def failed(self, error: StoreError) -> None:
        """A call failed: log it if the reason is new."""
        code = next((code for code in REFUSALS if code in error.detail), "")
        state = code or error.detail
        if state != self._state:
            LOG.warning(
                "the store failed: %s; settles answer 503 until it answers again", error.detail
            )
        self._state = state
        self.condition = Condition(error.type, error.detail, away=bool(code))

    def answered(self, *, wrote: bool) -> None:
        """A call succeeded; `wrote`: it has written."""
        if self.condition is not None and (wrote or not self.condition.away):
            LOG.info("the store answers again")
            self._state, self.condition = "", None
