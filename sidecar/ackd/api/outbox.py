"""What the engine answers about outboxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message that was accepted.

    `state`: waiting (for its time, or its turn), sending, sent, failed (the broker refuses it; kept
    until it is sent again or the time for that is over). `due_ms` while it waits or is sent.
    `in_doubt`: it may be with the broker twice, or be there already while it is still tried: an
    answer was lost, or the sidecar that sent it died. `message` is its id once it is sent.
    """

    id: str
    state: str
    due_ms: int | None = None
    in_doubt: bool = False
    message: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxView:
    """The outbox of one broker, as of its last look (at most about a second ago).

    `sender`: the sidecar that sends now, empty without one. `waiting`: messages that nobody has
    taken yet, `due` of them are over their time. `held`: taken by this sidecar. `detail`: why
    nothing is sent.
    """

    broker: str
    sender: str
    waiting: int
    due: int
    held: int
    failed: int
    bytes: int
    next_due_ms: int | None
    detail: str


class OutboxApi(Protocol):
    """Looking at outboxes, and sending again what a broker refused."""

    def views(self) -> Sequence[OutboxView]:
        """One per broker."""

    async def message(self, broker: str, number: int) -> OutboxMessage:
        """One message. Raises UnknownOutboxMessageError, StoreError."""

    async def again(self, broker: str, number: int) -> OutboxMessage:
        """Send a failed message again. Raises UnknownOutboxMessageError, StoreError,
        NotFailedError.
        """
