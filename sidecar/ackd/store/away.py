"""What is wrong with the servers now, told once for each change.

A server that refuses writes (no memory, no disk, a replica) answers reads all the while, and says
its refusal in other words for each script. So only a write ends a refusal, and refusals are told
apart by their codes.
"""

from __future__ import annotations

import logging

from ackd.errors import StoreError
from ackd.ports import Condition

LOG = logging.getLogger("ackd.store")

REFUSALS = ("MISCONF", "NOREPLICAS", "READONLY", "OOM")
"""Codes of a server that refuses writes."""


class Away:
    """`condition`: what to show; None while all is well."""

    def __init__(self) -> None:
        self.condition: Condition | None = None
        self._state = ""

    def __bool__(self) -> bool:
        return self.condition is not None

    def failed(self, error: StoreError) -> None:
        """A call was not answered well."""
        code = next((code for code in REFUSALS if code in error.detail), "")
        state = code or error.detail
        if state != self._state:
            LOG.warning("the store failed: %s", error.detail)
        self._state = state
        self.condition = Condition(error.type, error.detail, away=bool(code))

    def answered(self, *, wrote: bool) -> None:
        """A call succeeded; `wrote`: it has written."""
        if self.condition is not None and (wrote or not self.condition.away):
            LOG.info("the store answers again")
            self._state, self.condition = "", None
