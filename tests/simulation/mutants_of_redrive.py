"""Planted mistakes of a redrive (R2, R29)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ackd.core.record.operations import FinishOrigin
from ackd.core.record.protocol import Finish, RecordCall, RecordReply
from ackd.core.record.transitions import Outcome, Verb
from ackd.engine.partition.copy_headers import ORIGIN, REDRIVEN_FROM
from ackd.ports import Outgoing, PublishResult
from tests.simulation.broker import SimBroker
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.plan import REDRIVE
from tests.simulation.redrives import REDRIVEN
from tests.simulation.store_client import SimStore


class ToEverybody(SimBroker):
    """Dead letters go to their topic, although only this group was meant."""

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Copies of dead letters elsewhere."""
        return await super().publish([_elsewhere(each) for each in messages])


def _elsewhere(message: Outgoing) -> Outgoing:
    fields = dict(message.headers)
    origin = fields.get(ORIGIN)
    if REDRIVEN not in fields or origin is None:
        return message
    topic = origin.decode().split("/")[2]
    headers = ((REDRIVEN_FROM, fields[REDRIVEN]),)
    return replace(message, topic=topic, headers=headers, partition=None)


class MarkedBeforeItsCopy(SimStore):
    """A dead letter is gone before its copy is stored."""

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """What a redrive sends is finished at once."""
        replies = await super().apply(calls)
        over = [_over(call, reply) for call, reply in zip(calls, replies, strict=True)]
        if finishes := [each for each in over if each.ops]:
            await super().apply(finishes)
        return replies


def _over(call: RecordCall, reply: RecordReply) -> RecordCall:
    placed = {op.offset for op in call.ops if op.verb is Verb.PLACE_COPY}
    pairs = zip(call.ops, reply.results, strict=False)
    return RecordCall(
        call.key,
        [
            FinishOrigin(op.offset, result.fence, reply.rollback_epoch, Finish.SENT)
            for op, result in pairs
            if op.verb is Verb.MOVE_TO_RETRY
            and op.offset in placed
            and result.outcome is Outcome.SENT
        ],
        incarnation=call.incarnation,
    )


MUTANTS = (
    Mutant("a redrive goes to everybody", "R29", Parts(broker=ToEverybody), REDRIVE),
    Mutant(
        "a dead letter is gone before its copy", "R2", Parts(store=MarkedBeforeItsCopy), REDRIVE
    ),
)
