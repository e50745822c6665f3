"""Planted mistakes of a record: what its tokens, its watermark and its deadlines mean."""

from __future__ import annotations

from dataclasses import replace

from ackd.core.record.operations import Advance, Op, Settle
from ackd.core.record.protocol import Open, OpResult, RecordCall, RecordReply, Snapshot
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, Phase, State, TransitionStep, Verb
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.plan import GENERAL, Story
from tests.simulation.seams import WrongAsker, WrongStore, lease_of
from tests.simulation.store_client import SimStore


class ExceptionsForgotten(WrongStore):
    """What is over was acked, whatever ended it."""

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """An ack of it is a repeat."""
        del record
        over = result.outcome is Outcome.LOST and result.state is State.FINISHED
        wrong = op.verb is Verb.ACK and over
        return result._replace(outcome=Outcome.ALREADY_ACKED) if wrong else result


SHORTENED = Story(settings=GENERAL.settings, style="shorten")


class AnyToken(WrongStore):
    """A token of an earlier lease is as good as the newest."""

    def decides(self, record: PartitionRecord, op: Op) -> Op:
        """As if the newest had been shown."""
        lease = lease_of(record, op.offset)
        if lease is None or not isinstance(op, Settle):
            return op
        return op._replace(fence=lease.fence, rollback_epoch=lease.rollback_epoch)


class PassesOverGaps(WrongAsker):
    """The watermark moves to behind the last that is finished."""

    def asks(self, call: RecordCall, op: Op) -> Op:
        """Further than it should."""
        record = self.server.data.records.get(call.key) if isinstance(op, Advance) else None
        highest = None if record is None else record.finished.highest()
        return op if highest is None else Advance(max(op.offset, highest + 1))


class GrantsWithoutDeadline(WrongStore):
    """A grant does not look at the deadline of the lease before."""

    def decides(self, record: PartitionRecord, op: Op) -> Op:
        """It is over at once."""
        slot = record.slots.get(op.offset)
        if op.verb is Verb.GRANT and slot is not None and slot.state is State.LEASED:
            slot.when_ms = 0
        return op


class OnlyMakesLonger(WrongStore):
    """An extension that is shorter than what is left is answered, and nothing else."""

    _before_ms = 0

    def decides(self, record: PartitionRecord, op: Op) -> Op:
        """Remembers the deadline."""
        lease = lease_of(record, op.offset)
        self._before_ms = 0 if lease is None else lease.when_ms
        return op

    def decided(self, record: PartitionRecord, op: Op, result: OpResult) -> OpResult:
        """And puts it back."""
        lease = lease_of(record, op.offset)
        if lease is not None and op.verb is Verb.EXTEND and result.outcome is Outcome.EXTENDED:
            lease.when_ms = max(lease.when_ms, self._before_ms)
        return result


class OpensWithoutDeadlines(SimStore):
    """A new owner does not hear of leases, only of the attempts."""

    async def open(self, request: Open) -> Snapshot:
        """All that is leased is ready."""
        found = await super().open(request)
        slots = [
            each._replace(state=State.READY) if each.state is State.LEASED else each
            for each in found.slots
        ]
        return replace(found, slots=slots)


class HearsNoJournal(WrongAsker):
    """The owner does not hear what others have settled."""

    def heard(self, call: RecordCall, reply: RecordReply) -> RecordReply:
        """There is nothing in it."""
        del call
        return replace(reply, journal=reply.journal and [])


MUTANTS = (
    Mutant("below the watermark all is acked", "R15", Parts(memory=ExceptionsForgotten)),
    Mutant(
        "the journal is not read",
        "R16",
        Parts(store=HearsNoJournal),
        Story(settings=(("lease_ms", 8_000), ("sidecars", 2))),
    ),
    Mutant("an extension only makes longer", "I4", Parts(memory=OnlyMakesLonger), SHORTENED),
    Mutant("any token of a message counts", "R17", Parts(memory=AnyToken)),
    Mutant("the watermark passes over a gap", "I1", Parts(store=PassesOverGaps)),
    Mutant(
        "a grant does not ask for the deadline",
        "I3",
        Parts(memory=GrantsWithoutDeadline, store=OpensWithoutDeadlines),
        Story(("rebalance", "kill")),
        rows={(Phase.LEASED, Verb.GRANT): TransitionStep(Outcome.GRANTED, State.LEASED)},
    ),
)
