"""One message that is sent back: two records, copies that land twice or late, against I2-I4.

Whatever the order of grants, settles by old tokens, sending, copies, claims, takeovers and time: at
most one live lease, one copy that is delivered, and no delivery of what was answered `acked`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ackd.core.ids import LedgerKey
from ackd.core.record import decide
from ackd.core.record.operations import (
    Advance,
    ClaimOrigin,
    CloseOrigin,
    CopyRef,
    FinishOrigin,
    Gap,
    Grant,
    MarkDead,
    MoveToRetry,
    Op,
    PlaceCopy,
    Settle,
)
from ackd.core.record.protocol import CallStatus, Finish, Open, OpResult, RecordCall
from ackd.core.record.state import PartitionRecord
from ackd.core.record.transitions import Outcome, State, Verb

T0_MS = 1_700_000_000_000
OFFSET = 5
LEASE_MS = 100
OVER = (Outcome.FINISHED, Outcome.REFUSED)


@dataclass
class Lease:
    """A token, and where it is settled (the offset of the message or of its copy)."""

    record: PartitionRecord
    offset: int
    fence: int
    rollback_epoch: int
    attempt: int
    until_ms: int
    open: bool = True


@dataclass
class Copy:
    """A record of the retry topic. `fate`: what its claim came to."""

    offset: int
    generation: int
    rollback_epoch: int
    fate: str = ""


class SendBackMachine(RuleBasedStateMachine):
    """The owner of the origin, the owner of the retry partition, and old leases."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = T0_MS
        self.records = [self._record(number) for number in range(2)]
        self.origin, self.retry = self.records
        self.leases: list[Lease] = []
        self.copies: list[Copy] = []
        self.generation = 0
        self.rollback_epoch = 0
        self.acked = False
        self.dead = False

    def _record(self, partition: int) -> PartitionRecord:
        key = LedgerKey("c", "s", b"t" * 16, partition)
        request = Open(key, "a", 7 + partition, 77, 0, create_at=0)
        record = decide.create(request, 0, "run")
        decide.open_record(record, request, T0_MS * 1000, "run", created=True)
        return record

    def call(self, record: PartitionRecord, *ops: Op, owner: bool = True) -> list[OpResult]:
        key = LedgerKey("c", "s", b"t" * 16, 0)
        call = RecordCall(key, list(ops))
        if owner:
            call.term, call.seq = record.term, record.seq + 1
        reply = decide.apply(record, call, self.now_ms * 1000, "run")
        assert reply.verdict is CallStatus.OK
        return reply.results

    # --- time and owners

    @rule(ms=st.sampled_from([1, 50, 100, 101, 2_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(which=st.integers(0, 1))
    def an_owner_is_killed_and_another_takes_over(self, which: int) -> None:
        record = self.records[which]
        request = Open(LedgerKey("c", "s", b"t" * 16, which), "b", 9, 79, 0)
        decide.open_record(record, request, self.now_ms * 1000, "run", created=False)
        for copy in self.copies:
            if which == 1 and copy.fate == "claimed":
                copy.fate = ""  # not placed: whoever comes next does not know of the claim

    @rule(ms=st.sampled_from([700_000]), upto=st.just(OFFSET + 1))
    def much_later_the_watermark_moves(self, ms: int, upto: int) -> None:
        if self.origin.over(OFFSET):
            self.now_ms += ms
            self.call(self.origin, Advance(upto), Advance(upto))

    # --- deliveries

    def _granted(self, record: PartitionRecord, offset: int) -> None:
        (result,) = self.call(record, Grant.of(offset, LEASE_MS, 1))
        if result.outcome is Outcome.GRANTED:
            assert not self.acked, "an acked message was delivered again"
            assert not self.dead, "a message that was given up was delivered again"
            assert not any(self._lives(lease) for lease in self.leases), "two live leases"
            for lease in self.leases:
                lease.open = False
            until = self.now_ms + LEASE_MS
            self.leases.append(
                Lease(record, offset, result.fence, record.rollback_epoch, result.attempt, until)
            )

    def _lives(self, lease: Lease) -> bool:
        return lease.open and lease.until_ms > self.now_ms

    @rule()
    def grant(self) -> None:
        self._granted(self.origin, OFFSET)

    @precondition(lambda self: any(copy.fate == "placed" for copy in self.copies))
    @rule()
    def grant_copy(self) -> None:
        (copy,) = (copy for copy in self.copies if copy.fate == "placed")
        self._granted(self.retry, copy.offset)

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        verb=st.sampled_from([Verb.ACK, Verb.EXTEND, Verb.RETRY, Verb.DEAD, Verb.RELEASE]),
        owner=st.booleans(),
    )
    def settle(self, data: st.DataObject, verb: Verb, owner: bool) -> None:  # noqa: FBT001 - drawn
        lease = data.draw(st.sampled_from(self.leases))
        op = Settle(verb, lease.offset, lease.fence, lease.rollback_epoch, lease.attempt, LEASE_MS)
        (result,) = self.call(lease.record, op, owner=owner)
        if self._lives(lease):
            assert result.outcome not in (Outcome.LOST, Outcome.ALREADY_ACKED), "a live lease lost"
        if result.outcome in (Outcome.LOST, Outcome.ALREADY_ACKED):
            assert result.outcome is Outcome.LOST or self.acked, "false already_acked"
            return
        if verb is Verb.EXTEND:
            assert lease.open
            lease.until_ms = result.when_ms
            return
        lease.open = False
        self.acked = self.acked or verb is Verb.ACK
        self.dead = self.dead or (verb is Verb.DEAD)

    # --- sending back

    @rule()
    def send(self) -> None:
        (result,) = self.call(self.origin, MoveToRetry(OFFSET, 2))
        if result.outcome is Outcome.SENT:
            assert self.generation in (0, result.fence), "a second generation"
            self.generation, self.rollback_epoch = result.fence, self.origin.rollback_epoch

    @precondition(lambda self: self.generation and len(self.copies) < 4)
    @rule()
    def a_copy_lands(self) -> None:
        """Once, twice, or when all is over."""
        self.copies.append(Copy(len(self.copies), self.generation, self.rollback_epoch))

    @precondition(lambda self: self.copies)
    @rule()
    def finish(self) -> None:
        op = FinishOrigin(OFFSET, self.generation, self.rollback_epoch, Finish.SENT)
        (result,) = self.call(self.origin, op)
        assert result.outcome in (Outcome.DONE, Outcome.FINISHED)

    @precondition(lambda self: any(not copy.fate for copy in self.copies))
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        copy = data.draw(st.sampled_from([copy for copy in self.copies if not copy.fate]))
        op = ClaimOrigin(OFFSET, copy.generation, copy.rollback_epoch, CopyRef(1, copy.offset))
        (result,) = self.call(self.origin, op, owner=False)
        assert result.outcome is not Outcome.LOST
        if result.outcome in OVER:
            copy.fate = "finished"
            self.call(self.retry, Gap(copy.offset, copy.offset + 1))
        elif result.outcome is Outcome.CLAIMED:
            assert not self.acked, "a copy of an acked message may be delivered"
            assert not any(self._lives(lease) for lease in self.leases), "a live lease was ended"
            others = [c for c in self.copies if c is not copy and c.fate in ("claimed", "placed")]
            assert not others, "two copies may be delivered"
            copy.fate = "claimed"
            place = PlaceCopy(copy.offset, copy.generation, attempt=result.attempt)
            mark_dead = MarkDead(copy.offset, copy.generation)
            self.pending = [place, mark_dead] if result.state is State.DEAD else [place]
        else:
            assert result.outcome is Outcome.HELD
            assert result.when_ms > self.now_ms

    @precondition(lambda self: any(copy.fate == "claimed" for copy in self.copies))
    @rule()
    def place(self) -> None:
        (copy,) = (copy for copy in self.copies if copy.fate == "claimed")
        self.call(self.retry, *self.pending)
        copy.fate = "placed"

    @precondition(lambda self: any(copy.fate == "placed" for copy in self.copies))
    @rule()
    def close(self) -> None:
        self.call(self.origin, CloseOrigin(OFFSET, self.generation), owner=False)

    # --- what must hold at every moment

    @invariant()
    def an_unfinished_message_is_somewhere(self) -> None:
        """I1: in the window, or in a copy that still can be delivered (or none was stored yet)."""
        if self.acked or not self.origin.over(OFFSET):
            return
        alive = [copy for copy in self.copies if copy.fate != "finished"]
        assert alive, "finished, and no copy is left"


TestSendBack = SendBackMachine.TestCase
