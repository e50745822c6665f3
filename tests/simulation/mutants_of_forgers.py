"""Planted mistakes of signatures of copies, and of what is believed without one (R2)."""

from __future__ import annotations

from ackd.core.record.operations import NameCopy, Op, VouchCopy
from ackd.core.record.protocol import OpResult, RecordCall
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome
from tests.simulation.forgers import IN_ORDER, KEYS_LOST, PLAIN
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.seams import WrongAsker, WrongStore, nothing


class VouchesForAll(WrongStore):
    """An origin record knows any copy that asks."""

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """Whatever it says."""
        del record
        return result._replace(outcome=Outcome.CLAIMED) if isinstance(op, VouchCopy) else result


class VouchesForUnnamed(WrongStore):
    """Where nobody has named a copy yet, any is believed, as if an older build had moved it."""

    def decides(self, record: PartitionRecord, op: Op) -> Op:
        """It forgets that the mover signs."""
        origin = record.origins.get(op.offset) if isinstance(op, VouchCopy) else None
        if origin is not None and origin.named is None:
            origin.signs = False
        return op


class NamesNoCopy(WrongAsker):
    """Nobody says where a copy is stored."""

    def asks(self, call: RecordCall, op: Op) -> Op:
        """It is left out."""
        del call
        return nothing(op) if isinstance(op, NameCopy) else op


class RefusesAtOnce(WrongAsker):
    """A copy whose move is not confirmed yet is put aside instead of asking again."""

    def answered(self, call: RecordCall, op: Op, result: OpResult) -> OpResult:
        """Not yet is no."""
        del call
        held = isinstance(op, VouchCopy) and result.outcome is Outcome.HELD
        return result._replace(outcome=Outcome.REFUSED) if held else result


MUTANTS = (
    Mutant("any copy is vouched for", "R2", Parts(memory=VouchesForAll), PLAIN),
    Mutant("a copy is believed before it is named", "R2", Parts(memory=VouchesForUnnamed), PLAIN),
    Mutant("any signature is good", "R2", story=PLAIN),
    Mutant("copies are never named", "I1", Parts(store=NamesNoCopy), KEYS_LOST),
    Mutant("a copy is put aside at once", "I1", Parts(store=RefusesAtOnce), KEYS_LOST),
    Mutant("what is forged has a place in the order", "R19", story=IN_ORDER),
)
