"""Shows dead letters that other consumers wrote into `dead_letter_topic` as if ackd had written
them.

They have no origin record, as nothing in ackd waits for them. A redrive only needs to know where
they came from. The marks at their own coordinate keep them from being redriven twice, as for ackd's
own dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.origin import Origin
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.engine.retry.copy_filter import is_copy
from ackd.ports import DeadLetterOrigins, DeadOrigin, Record

REASON = "a dead letter of another consumer"


class ExternalDeadLetters:
    """Reads the external dead letters of one subscription."""

    def __init__(self, broker: DeadLetterOrigins, cluster: str, subscription: str) -> None:
        self._broker = broker
        self._cluster = cluster
        self._subscription = subscription

    async def retry_copies(
        self, records: Sequence[Record], known: Sequence[RetryCopy | None]
    ) -> list[RetryCopy | None]:
        """`known`, completed with the letters that other clients wrote. Raises BrokerError."""
        found = list(known)
        places = [
            place
            for place, retry_copy in enumerate(known)
            if retry_copy is None and not is_copy(records[place])
        ]
        if not places:
            return found
        origins = await self._broker.dead_origins([records[place] for place in places])
        for place, origin in zip(places, origins, strict=True):
            if origin is not None:
                found[place] = self._retry_copy(origin, records[place])
        return found

    def _retry_copy(self, dead: DeadOrigin, record: Record) -> RetryCopy | None:
        """None if no message can have this origin."""
        origin = Origin(self._cluster, dead.topic_id, dead.topic, dead.partition, dead.offset)
        if not origin.possible:
            return None
        return RetryCopy(
            origin=origin,
            subscription=self._subscription,
            generation=0,
            incarnation=0,
            rollback_epoch=0,
            attempt=dead.attempts,
            due_ms=0,
            first_ms=record.timestamp_ms,
            published_ms=record.timestamp_ms,
            reason=REASON,
        )
