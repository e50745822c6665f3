"""Planted mistakes of cancels, and of who is waited for; see `mutants`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

from ackd.core.record.protocol import Op
from ackd.core.record.transitions import Verb
from ackd.engine.cluster.members import View, behind
from ackd.engine.control.cancel import Cancels
from ackd.engine.partition.copy_headers import Carrier
from ackd.engine.partition.partition import Partition
from ackd.ports import Member
from ackd.store.flusher import LedgerHandle
from tests.simulation.cancels import AWAY, WORK
from tests.simulation.mutant import Mutant


def claimed_or_not() -> Any:
    """A parked message counts as over although its copy may have claimed it."""

    async def blind(
        self: Cancels, handle: LedgerHandle, _: Partition, __: int, carrier: Carrier
    ) -> bool:
        await self._ask(handle, Op(Verb.REPLAY, carrier.home.offset))
        return True

    return patch.object(Cancels, "_parked_ack", blind)


def told_before_it_is_done() -> Any:
    """An operator is told at once."""

    async def ack(*_: object) -> str:
        return "acked"

    return patch.object(Cancels, "_ack", ack)


def the_silent_are_forgotten() -> Any:
    """Who may come back with acks that it has served is not waited for."""

    def forgettable(self: View, owned: Iterable[str]) -> list[Member]:
        taken = self.taken() | set(owned)
        return [each for each in self.dead if taken.issuperset(behind(each))]

    return patch.object(View, "forgettable", forgettable)


MUTANTS = (
    Mutant("a claimed message is cancelled in its home", "I2", claimed_or_not, AWAY),
    Mutant("a cancel is told before it is done", "I7", told_before_it_is_done, WORK),
    Mutant("the silent are forgotten", "R10", the_silent_are_forgotten, AWAY, 61),
)
