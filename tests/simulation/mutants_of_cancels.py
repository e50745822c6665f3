"""Planted mistakes of cancels, and of who is waited for."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.api.control import Cancel, CancelTo
from ackd.core.record.operations import Op, ReplayAck
from ackd.core.record.protocol import OpResult, RecordCall
from ackd.core.record.transitions import Outcome, Verb
from ackd.engine.cluster.members import SILENT_MS
from ackd.ports import Member, Members
from tests.simulation.cancels import AWAY, WORK
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts, SeededRuntime
from tests.simulation.seams import WrongAsker
from tests.simulation.store_client import SimStore


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


class ForgetsTheSilent(SimStore):
    """Who may come back with acks that it has served is not waited for."""

    async def heartbeat(
        self, subscription: str, name: str, boot: int, owned: Sequence[str], note: str
    ) -> Members:
        """Removes them as soon as all that they owned is taken."""
        found = await super().heartbeat(subscription, name, boot, owned, note)
        for each in found.members:
            others = {text for one in found.members if _lives(one) for text in one.owned}
            if each.name != name and not _lives(each) and others.union(owned) >= {*each.owned}:
                await super().forget(subscription, each.name, each.boot)
        return found


def _lives(member: Member) -> bool:
    return member.silent_ms < SILENT_MS


MUTANTS = (
    Mutant(
        "a claimed message is cancelled in its origin record", "I2", Parts(store=ClaimedOrNot), AWAY
    ),
    Mutant("a cancel is told before it is done", "I7", Parts(runtime=ToldBeforeItIsDone), WORK),
    Mutant("the silent are forgotten", "R10", Parts(store=ForgetsTheSilent), AWAY),
)
