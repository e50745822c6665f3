"""External dead letters: what another client put into a topic, in the way of its own library."""

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
class ForeignDead(Protocol):
    """Reads what the broker's own consumers write into a dead letter. An adapter may lack it."""

    async def dead_origins(self, records: Sequence[Record]) -> list[DeadOrigin | None]:
        """For each record where it came from; None for one that is no such dead letter, and for
        one whose topic is gone. Raises BrokerError.
        """
