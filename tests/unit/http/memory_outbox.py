"""Test support: an outbox in memory that sends nothing, so that its addresses can be tested."""

from __future__ import annotations

from ackd.api.messages import Accepted
from ackd.api.outbox import OutboxMessage, OutboxView
from ackd.errors import NotFailedError, UnknownOutboxMessageError

NOW_MS = 1_700_000_000_000


class MemoryOutbox:
    """The outbox of a broker `main`; every third message is refused by the broker."""

    def __init__(self) -> None:
        self.messages: dict[int, OutboxMessage] = {}

    def accept(self, delay_ms: int) -> Accepted:
        """Keep one message."""
        accepted = Accepted("main", len(self.messages) + 1, NOW_MS + delay_ms)
        failed = accepted.number % 3 == 0
        self.messages[accepted.number] = (
            OutboxMessage(accepted.id, "failed", error="publish-refused: no")
            if failed
            else OutboxMessage(accepted.id, "waiting", accepted.due_ms)
        )
        return accepted

    def views(self) -> list[OutboxView]:
        """The one."""
        return [OutboxView("main", "me", len(self.messages), 0, 0, 0, 0, None, "")]

    async def message(self, broker: str, number: int) -> OutboxMessage:
        """One message."""
        if broker != "main" or number not in self.messages:
            raise UnknownOutboxMessageError
        return self.messages[number]

    async def again(self, broker: str, number: int) -> OutboxMessage:
        """Only failed ones."""
        found = await self.message(broker, number)
        if found.state != "failed":
            raise NotFailedError
        self.messages[number] = OutboxMessage(found.id, "waiting", NOW_MS)
        return self.messages[number]
