"""Planted mistakes of cancels."""

from __future__ import annotations

from ackd.api.control import Cancel, CancelTo
from ackd.core.record.operations import Op, ReplayAck
from ackd.core.record.protocol import OpResult, RecordCall
from ackd.core.record.transitions import Outcome, Verb
from tests.simulation.cancels import MANY, WORK
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts, SeededRuntime
from tests.simulation.seams import WrongAsker


class ClaimedOrNot(WrongAsker):
    """A moved message counts as over although its copy may have claimed it."""

    def answered(self, call: RecordCall, op: Op, result: OpResult) -> OpResult:
        """What was finished in its origin record is finished."""
        ended = ReplayAck(op.offset) in call.ops
        cancelled = op.verb is Verb.CLAIM and ended
        return result._replace(outcome=Outcome.FINISHED) if cancelled else result


class ToldBeforeItIsDone(SeededRuntime):
    """An operator is told at once."""

    async def cancel(self, name: str, message: str, then: CancelTo, reason: str) -> Cancel:
        """Nothing becomes of it."""
        del name
        return Cancel(message, then, reason, 0, done="acked")


MUTANTS = (
    Mutant(
        "a claimed message is cancelled in its origin record",
        "I2",
        Parts(store=ClaimedOrNot),
        MANY,
    ),
    Mutant("a cancel is told before it is done", "I7", Parts(runtime=ToldBeforeItIsDone), WORK),
)
