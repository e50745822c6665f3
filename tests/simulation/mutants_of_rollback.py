"""Planted mistakes about what a store forgot in a failover (R9, R10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ackd.core.record.operations import (
    Grant,
    Op,
    ReplayAck,
    ReplayFinished,
    RestoreClaimed,
    RestoreMoved,
    Settle,
)
from ackd.core.record.protocol import CallStatus, Open, OpResult, RecordCall, RecordReply, Snapshot
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, Verb
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.plan import FAILOVER, Story
from tests.simulation.seams import DONE, WrongAsker, WrongStore, nothing


class FencesFromMemory(WrongStore):
    """After a rollback the same number, under the same term, is given to somebody else."""

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Each grant gets the next number."""
        return [await self._numbered(call) for call in calls]

    async def _numbered(self, call: RecordCall) -> RecordReply:
        record = self.data.records.get(call.key)
        last = 0 if record is None else record.fence
        (reply,) = await super().apply([call])
        if record is None or not reply.results:
            return reply
        numbers: dict[int, int] = {}
        for index, (op, result) in enumerate(zip(call.ops, reply.results, strict=True)):
            if isinstance(op, Grant) and result.outcome is Outcome.GRANTED:
                fence = numbers.setdefault(op.receive, last + 1 + len(numbers))
                record.slots[op.offset].fence = record.fence = fence
                reply.results[index] = result._replace(fence=fence)
        return reply

    async def open(self, request: Open) -> Snapshot:
        """The term stays."""
        record = self.data.records.get(request.key)
        same = request if record is None else replace(request, rollback_epoch=record.rollback_epoch)
        return await super().open(same)


class RepairsNothing(WrongAsker):
    """What the store forgot is not told it again."""

    def asks(self, call: RecordCall, op: Op) -> Op:
        """No finishes, origin records or leases."""
        del call
        return nothing(op) if self._is_repair(op) else op

    def answered(self, call: RecordCall, op: Op, result: OpResult) -> OpResult:
        """As if it had been."""
        del call
        if not self._is_repair(op):
            return result
        return result._replace(outcome=Outcome.EXTENDED) if op.verb is Verb.EXTEND else DONE

    def _is_repair(self, op: Op) -> bool:
        """Chunks are made again all the same."""
        if isinstance(op, Settle):
            return op.verb is Verb.EXTEND and not op.counted
        return isinstance(op, ReplayAck | ReplayFinished | RestoreMoved | RestoreClaimed)


class RestoresNoOrigin(RepairsNothing):
    """The rest is told."""

    def _is_repair(self, op: Op) -> bool:
        """Origin records alone."""
        return op.verb is Verb.RESTORE


class DoubtsNothing(WrongStore):
    """What a repair has finished without knowing how counts as acked."""

    def decides(self, record: PartitionRecord, op: Op) -> Op:
        """Nothing is noted of it."""
        record.doubt = 0, 0
        return op


class UnansweredIsUnknown(WrongAsker):
    """A claim of a record that nobody has re-opened yet counts as one of a record that is gone."""

    def heard(self, call: RecordCall, reply: RecordReply) -> RecordReply:
        """There is no record."""
        claims = any(op.verb is Verb.CLAIM for op in call.ops)
        gone = claims and reply.verdict is not CallStatus.OK
        return replace(reply, verdict=CallStatus.ABSENT) if gone else reply


MUTANTS = (
    Mutant(
        "fences come from memory",
        "R9",
        Parts(memory=FencesFromMemory),
        Story(("store_failover", "kill")),
    ),
    Mutant(
        "nothing is repaired after a rollback",
        "R10",
        Parts(store=RepairsNothing),
        Story(("store_failover",)),
    ),
    Mutant(
        "a forgotten origin record is not written again",
        "R10",
        Parts(store=RestoresNoOrigin),
        FAILOVER,
    ),
    Mutant("what is repaired was acked", "I7", Parts(memory=DoubtsNothing), FAILOVER),
    Mutant("no answer to a claim is one", "R2", Parts(store=UnansweredIsUnknown), FAILOVER),
)
