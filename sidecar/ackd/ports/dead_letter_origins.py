"""External dead letters: messages that another client's library put into a dead-letter topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ackd.ports.events import Record


class DeadOrigin(NamedTuple):
    """Where a dead letter came from. `attempts`: deliveries, 0 = not known."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    attempts: int


@runtime_checkable
class DeadLetterOrigins(Protocol):
    """Reads what the broker's own client libraries write into dead letters. Optional for an
    adapter.
    """

    async def dead_origins(self, records: Sequence[Record]) -> list[DeadOrigin | None]:
        """Tell for each record where it came from; None for a record that is no such dead
        letter, or whose topic is gone. Raises BrokerError.
        """
