"""Dead letters of others' consumers in the topic that `dead_letter_topic` names, as if ackd had
made them.

They have no home record: nothing of ackd's waits for them. What a redrive needs is where they came
from; that they are redriven once is kept by the marks at their own place, as for ackd's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.origin import Origin
from ackd.engine.partition.copy_headers import ORIGIN, RetryCopy
from ackd.ports import DeadOrigin, ForeignDead, Record

REASON = "a dead letter of another consumer"


class ExternalDeadLetters:
    """Of one subscription."""

    def __init__(self, broker: ForeignDead, cluster: str, subscription: str) -> None:
        self._broker = broker
        self._cluster = cluster
        self._subscription = subscription

    async def carriers(
        self, records: Sequence[Record], known: Sequence[RetryCopy | None]
    ) -> list[RetryCopy | None]:
        """`known`, with those that others have put there. Raises BrokerError."""
        found = list(known)
        places = [
            place
            for place, carrier in enumerate(known)
            if carrier is None and not _of_ackd(records[place])
        ]
        if not places:
            return found
        origins = await self._broker.dead_origins([records[place] for place in places])
        for place, origin in zip(places, origins, strict=True):
            if origin is not None:
                found[place] = self._carrier(origin, records[place])
        return found

    def _carrier(self, said: DeadOrigin, record: Record) -> RetryCopy | None:
        """None if no message can come from there."""
        origin = Origin(self._cluster, said.topic_id, said.topic, said.partition, said.offset)
        if not origin.possible:
            return None
        return RetryCopy(
            origin=origin,
            subscription=self._subscription,
            generation=0,
            incarnation=0,
            rterm=0,
            attempt=said.attempts,
            due_ms=0,
            first_ms=record.timestamp_ms,
            published_ms=record.timestamp_ms,
            reason=REASON,
        )


def _of_ackd(record: Record) -> bool:
    """A dead letter of another subscription."""
    return any(name == ORIGIN for name, _ in record.headers)
