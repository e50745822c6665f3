"""Planted mistakes of what is sent back or given up, and of its copies (R2, R4, R25)."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.record.operations import ClaimOrigin, Op
from ackd.core.record.protocol import OpResult, RecordCall
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, Verb
from ackd.ports import Outgoing, PublishResult, Stored
from ackd.ports.own_topics import is_own_topic
from tests.simulation.broker import SimBroker
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.plan import SEND_BACK, Story
from tests.simulation.seams import UNKNOWN, WrongAsker, WrongStore, nothing


def _stored(message: Outgoing) -> Stored:
    return Stored(message.topic, message.partition or 0, 0)


class KeepsNoCopy(SimBroker):
    """A copy is said to be stored and is not even sent."""

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Only to topics of others."""
        return [
            _stored(each) if is_own_topic(each.topic) else (await super().publish([each]))[0]
            for each in messages
        ]


class RefusesNoCopy(SimBroker):
    """A copy that was refused, or of which nobody knows, is said to be stored."""

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """To topics of others as it is."""
        pairs = zip(messages, await super().publish(messages), strict=True)
        return [_stored(each) if is_own_topic(each.topic) else result for each, result in pairs]


class Claimless(WrongAsker):
    """A copy claims nothing, and is handed out as if nobody knew anything of its message."""

    def asks(self, call: RecordCall, op: Op) -> Op:
        """No claims."""
        del call
        return nothing(op) if op.verb is Verb.CLAIM else op

    def answered(self, call: RecordCall, op: Op, result: OpResult) -> OpResult:
        """Nothing is known."""
        del call
        return UNKNOWN if op.verb is Verb.CLAIM else result


class ClaimedByAny(WrongStore):
    """A second copy of the same generation may claim, too."""

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """Refused is claimed."""
        del record
        claims = isinstance(op, ClaimOrigin) and result.fence == op.generation
        again = claims and result.outcome is Outcome.REFUSED
        return result._replace(outcome=Outcome.CLAIMED) if again else result


class SendingEndsTheLease(WrongStore):
    """The copy need not wait for the lease of its original."""

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """What was sent back has no deadline."""
        if op.verb is Verb.MOVE_TO_RETRY and result.outcome is Outcome.SENT:
            record.origins[op.offset].slot.when_ms = 0
        return result


MUTANTS = (
    Mutant("a dead letter is finished without its copy", "R2", Parts(broker=KeepsNoCopy)),
    Mutant(
        "a stuck message is finished without its copy", "R2", Parts(broker=KeepsNoCopy), SEND_BACK
    ),
    Mutant("a copy is handed out without a claim", "R2", Parts(store=Claimless), SEND_BACK),
    Mutant(
        "a copy that was refused counts as stored",
        "R25",
        Parts(broker=RefusesNoCopy),
        Story(("broker_net", "broker_down"), (("stuck_ms", 1_500),), "slow"),
    ),
    Mutant("any copy may claim", "R2", Parts(memory=ClaimedByAny), SEND_BACK),
    Mutant("the move ends the lease", "R4", Parts(memory=SendingEndsTheLease), SEND_BACK),
)
