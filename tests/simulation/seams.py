"""Where a planted mistake gets between an engine and its store: in the language that they speak.

The language (`core.record.protocol`) and the data of a record outlive the code that reads them, so
the mistakes that are planted here name no method of production code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ackd.core.record.operations import LookUp, Op
from ackd.core.record.protocol import CallStatus, OpResult, RecordCall, RecordReply
from ackd.core.record.slot import Slot
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, State
from ackd.store.memory import MemoryStore
from tests.simulation.store_client import SimStore

DONE = OpResult(Outcome.DONE, State.READY, 0, 0, 0, 0, late=False)
UNKNOWN = DONE._replace(outcome=Outcome.LOST)


def nothing(op: Op) -> Op:
    """Stands for an item that is not to be decided: it reads."""
    return LookUp(op.offset)


def lease_of(record: PartitionRecord, offset: int) -> Slot | None:
    """What is kept of a message that was handed out: in its origin record, if it has one."""
    origin = record.origins.get(offset)
    return record.slots.get(offset) if origin is None else origin.slot


class WrongStore(MemoryStore):
    """Decides something else than it was asked, or answers something else than it has decided.

    It remembers nothing: after a failover its calls are decided once more.
    """

    def decides(self, record: PartitionRecord, op: Op) -> Op:
        """What is decided instead; the record may be changed."""
        del record
        return op

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """What is answered to `op`; the record may be changed."""
        del record, op
        return result

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Each call, with another meaning."""
        return [await self._one(call) for call in calls]

    async def _one(self, call: RecordCall) -> RecordReply:
        record = self.data.records.get(call.key)
        if record is None:
            return (await super().apply([call]))[0]
        ops = [self.decides(record, op) for op in call.ops]
        (reply,) = await super().apply([replace(call, ops=ops)])
        if reply.verdict is CallStatus.OK:
            pairs = zip(call.ops, reply.results, strict=True)
            reply.results = [self.decided(record, op, result) for op, result in pairs]
        return reply


class WrongAsker(SimStore):
    """One sidecar asks something else than its engine does, or tells it another answer."""

    def asks(self, call: RecordCall, op: Op) -> Op:
        """What is asked instead."""
        del call
        return op

    def answered(self, call: RecordCall, op: Op, result: OpResult) -> OpResult:
        """What the engine hears of `op`."""
        del call, op
        return result

    def heard(self, call: RecordCall, reply: RecordReply) -> RecordReply:
        """What the engine hears of a whole call."""
        del call
        return reply

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """One flush, with another meaning."""
        asked = [
            replace(call, ops=[self.asks(call, op) for op in call.ops]) for call in calls
        ]  # fmt: skip
        replies = await super().apply(asked)
        return [self._answer(call, reply) for call, reply in zip(calls, replies, strict=True)]

    def _answer(self, call: RecordCall, reply: RecordReply) -> RecordReply:
        if reply.verdict is not CallStatus.OK:
            return self.heard(call, reply)
        pairs = zip(call.ops, reply.results, strict=True)
        results = [self.answered(call, op, result) for op, result in pairs]
        return self.heard(call, replace(reply, results=results))
