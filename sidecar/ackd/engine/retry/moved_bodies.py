"""The bodies of messages that have moved to the retry topic under a lease that is still open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ackd.api.messages import Delivery
from ackd.core.lease_token import Token
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.body_spill import BodySpill


class HeldCopies(Protocol):
    """What is asked of `ackd.engine.retry.claims.CopyClaims`."""

    @property
    def held(self) -> Mapping[tuple[bytes, int], Mapping[int, tuple[Partition, int, int]]]: ...


class MovedBodies:
    """Finds them in the copies of this sidecar that wait for the end of such a lease."""

    def __init__(self, claims: HeldCopies, bodies: BodySpill) -> None:
        self._claims = claims
        self._bodies = bodies

    async def message(self, token: Token, lease: str, attempts_max: int) -> Delivery | None:
        """Return the message of a lease as its copy has it; None if that is not here. Attempt and
        deadline are 0.
        """
        found = self._claims.held.get((token.topic_id, token.partition), {}).get(token.offset)
        if found is None:
            return None
        partition, offset, _ = found
        body = await self._bodies.body(partition, offset)
        if body is None or partition.closed:
            return None
        return partition.message(lease, body, 0, attempts_max, 0, 0)
