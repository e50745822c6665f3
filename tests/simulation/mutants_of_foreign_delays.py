"""Planted mistakes of messages that other clients delayed (I4)."""

from __future__ import annotations

from dataclasses import replace

from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Op, PlaceCopy
from ackd.core.record.protocol import OpResult, RecordCall
from ackd.ports import ConsumerEvent, Fetched
from tests.simulation.broker import SimConsumer
from tests.simulation.foreign_delays import AWAY
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.process import Process
from tests.simulation.seams import DONE, WrongAsker, nothing
from tests.simulation.store import StoreServer


class Unheard(SimConsumer):
    """What the adapter tells is not heard."""

    async def events(self) -> list[ConsumerEvent]:
        """Nothing is delayed."""
        return [
            replace(each, delays=None) if isinstance(each, Fetched) else each
            for each in await super().events()
        ]


class ToldOnce(WrongAsker):
    """What was on its way to the store, or forgotten by it, is ready."""

    def __init__(self, server: StoreServer, process: Process, timeout_ms: int) -> None:
        super().__init__(server, process, timeout_ms)
        self._known: dict[tuple[LedgerKey, int], Op] = {}

    def asks(self, call: RecordCall, op: Op) -> Op:
        """Not again."""
        return nothing(op) if self._again(call, op) else op

    def answered(self, call: RecordCall, op: Op, result: OpResult) -> OpResult:
        """Ready."""
        return DONE if self._again(call, op) else result

    def _again(self, call: RecordCall, op: Op) -> bool:
        delays = isinstance(op, PlaceCopy) and not op.generation
        return delays and self._known.setdefault((call.key, op.offset), op) is not op


MUTANTS = (
    Mutant("what others delayed is not heard", "I4", Parts(consumer=Unheard), AWAY),
    Mutant("what was delayed is told once", "I4", Parts(store=ToldOnce), AWAY),
)
