"""Questions about outboxes, and sending failed messages again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message that ackd accepted.


    `state`: waiting (for its time or its turn), sending, sent, failed (the broker refuses it; the
    store keeps it for a while, in which it can be sent again). `due_ms` while it waits or is sent.
    `in_doubt`: the broker may have it twice, or have it already while a sidecar still tries: an
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
    """The outbox of one broker, as the sidecar last read it (at most about a second ago).

    `sender`: the sidecar that sends now, empty if none. `waiting`: messages that nobody has taken
    yet; `due` of them are due. `held`: taken by this sidecar. `detail`: why nothing is sent.
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
    """Reads outboxes, and sends messages again that a broker refused."""

    def views(self) -> Sequence[OutboxView]:
        """Return the outboxes of all brokers."""

    async def message(self, broker: str, number: int) -> OutboxMessage:
        """Read one message. Raises UnknownOutboxMessageError, StoreError."""

    async def again(self, broker: str, number: int) -> OutboxMessage:
        """Send a failed message again. Raises UnknownOutboxMessageError, StoreError,
        NotFailedError.
        """
