"""The parts that hold retry copies, for parts that need them and tests that have no copies."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.ids import LedgerKey
from ackd.engine.base.spill_file import Stub
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.claims import CopyClaims
from ackd.engine.retry.key_queues import KeyQueues
from ackd.ports import Record
from tests.unit.engine.world import World


class NoSpill:
    """A disk without room."""

    taken = 0

    async def write(self, records: Sequence[Record]) -> list[Stub] | None:
        del records
        return None

    async def read(self, stubs: Sequence[Stub]) -> list[Record]:
        raise NotImplementedError(stubs)

    def free(self, stub: Stub) -> None:
        raise NotImplementedError(stub)

    async def close(self) -> None:
        """Nothing to delete."""


async def _no_dead_letters(key: LedgerKey) -> None:
    raise NotImplementedError(key)


def copies(world: World) -> tuple[BodySpill, CopyClaims]:
    """Bodies stay in memory; claims are real ones."""
    state, context, partitions = world.state, world.context, world.partitions
    bodies = BodySpill(state, context, partitions, NoSpill())
    queues = KeyQueues(state, context, partitions, world.topics, "retry", lambda *_: None)
    claims = CopyClaims(state, context, partitions, world.topics, bodies, queues, _no_dead_letters)
    return bodies, claims
