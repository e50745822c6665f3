"""A slot: what the store keeps of a message that was delivered and is not finished."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.core.record.protocol import OpResult
from ackd.core.record.transitions import Outcome, Phase, State

RELEASES_MAX = 100
"""Releases of one message that don't count as attempts; from then on they do (rule R28)."""
SLOT_CHUNK_SHIFT = 8
"""Slots are freed by chunks of 2^8 offsets, as the store keeps them (R26)."""


@dataclass(slots=True)
class Slot:
    """A message that was delivered at least once and is not finished."""

    state: State = State.READY
    attempt: int = 0
    releases: int = 0
    fence: int = 0
    rollback_epoch: int = 0
    when_ms: int = 0
    first_s: int = 0

    def phase(self, now_ms: int) -> Phase:
        """The phase of the message at `now_ms`, unless its offset is finished."""
        if self.state is State.LEASED:
            return Phase.LEASED if self.when_ms > now_ms else Phase.EXPIRED
        return Phase.ACKED if self.state is State.FINISHED else Phase(self.state)

    def uncount(self) -> None:
        """Take the last attempt back, as long as that was not done too often."""
        if self.releases < RELEASES_MAX:
            self.releases += 1
            self.attempt = max(self.attempt - 1, 0)

    def result(
        self,
        outcome: Outcome,
        *,
        state: State | None = None,
        when_ms: int | None = None,
        late: bool = False,
    ) -> OpResult:
        """Make the answer to an operation on this message."""
        return OpResult(
            outcome,
            self.state if state is None else state,
            self.attempt,
            self.fence,
            self.when_ms if when_ms is None else when_ms,
            self.first_s,
            late,
        )
