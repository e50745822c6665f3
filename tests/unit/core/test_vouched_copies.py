"""An origin record knows its copy by the place where the broker stored it (R2)."""

from __future__ import annotations

from ackd.core.ids import LedgerKey
from ackd.core.record import decide
from ackd.core.record.copies import VOUCH_AGAIN_MS
from ackd.core.record.decide import REPAIR_WAIT_MS
from ackd.core.record.operations import (
    ClaimOrigin,
    CopyRef,
    EndRepair,
    FinishOrigin,
    Grant,
    MarkDead,
    MoveToRetry,
    NameCopy,
    Op,
    PlaceCopy,
    RestoreMoved,
    VouchCopy,
)
from ackd.core.record.protocol import CallStatus, Finish, Open, OpResult, RecordCall
from ackd.core.record.state import OriginRecord
from ackd.core.record.transitions import Outcome, State

KEY = LedgerKey("cluster", "orders", b"\1" * 16, 0)
START_US = 1_700_000_000_000_000
HERE, THERE = CopyRef(2, 70), CopyRef(2, 71)


class _Store:
    """A record whose message 1 is leased for a moment, and moves to the retry topic."""

    def __init__(self, *, moves: bool = True) -> None:
        self.now_us, self.run = START_US, "run-1"
        request = Open(KEY, "a#1", rollback_epoch=1, incarnation=1, grace_ms=0, create_at=0)
        self.record = decide.create(request, 0, self.run)
        self.open(1, created=True)
        self.one(Grant.of(1, 1, 1))
        self.generation = self.one(MoveToRetry(1, 1)).fence if moves else self.now_us + 5

    def open(self, rollback_epoch: int, *, created: bool = False) -> None:
        request = Open(KEY, "a#1", rollback_epoch, incarnation=1, grace_ms=0, create_at=0)
        assert decide.open_record(self.record, request, self.now_us, self.run, created=created).term

    def one(self, op: Op) -> OpResult:
        self.now_us += 2_000
        reply = decide.apply(self.record, RecordCall(KEY, [op]), self.now_us, self.run)
        assert reply.verdict is CallStatus.OK
        return reply.results[0]

    def vouches(self, copy: CopyRef = HERE, *, more: int = 0) -> Outcome:
        return self.one(VouchCopy(1, self.generation + more, copy)).outcome

    def stored(self, copy: CopyRef | None = HERE) -> None:
        self.one(FinishOrigin(1, self.generation, 1, Finish.SENT))
        if copy is not None:
            self.one(NameCopy(1, self.generation, copy))

    @property
    def origin(self) -> OriginRecord:
        return self.record.origins[1]


def test_nobody_knows_a_copy_before_its_move_is_confirmed() -> None:
    store = _Store()
    answer = store.one(VouchCopy(1, store.generation, HERE))
    now_ms = store.now_us // 1_000
    assert (answer.outcome, answer.when_ms) == (Outcome.HELD, now_ms + VOUCH_AGAIN_MS)


def test_the_place_that_the_broker_gave_tells_it_from_all_others() -> None:
    store = _Store()
    store.stored()
    assert store.vouches() is Outcome.CLAIMED
    assert store.vouches(THERE) is Outcome.REFUSED
    assert store.vouches(CopyRef(3, 70)) is Outcome.REFUSED
    assert store.vouches(more=1) is store.vouches(more=-1) is Outcome.REFUSED
    assert store.one(ClaimOrigin(1, store.generation, 1, HERE)).outcome is Outcome.CLAIMED
    store.one(NameCopy(1, store.generation, THERE))
    assert store.vouches() is Outcome.CLAIMED
    assert store.vouches(THERE) is Outcome.REFUSED
    assert store.one(VouchCopy(9, store.generation, HERE)).outcome is Outcome.LOST


def test_without_a_place_only_the_copies_of_older_builds_are_believed() -> None:
    store = _Store()
    store.stored(None)
    assert store.vouches() is Outcome.REFUSED
    store.origin.signs = False
    assert store.vouches() is Outcome.CLAIMED
    assert store.vouches(more=1) is Outcome.LOST
    assert store.vouches(more=-1) is Outcome.REFUSED


def test_a_later_copy_that_claims_takes_the_place_of_the_one_before_with_it() -> None:
    store = _Store()
    store.stored()
    store.origin.slot.state, store.origin.slot.when_ms = State.LEASED, 1 << 47
    later = ClaimOrigin(1, store.generation + 1, 1, THERE)
    assert store.one(later).outcome is Outcome.HELD
    store.generation += 1
    assert store.vouches() is Outcome.REFUSED


def test_r10_what_a_rollback_erased_is_named_again() -> None:
    """A copy waits for that as long as the repair lasts."""
    store = _Store(moves=False)
    store.run = "run-2"
    store.open(2)
    assert store.vouches() is Outcome.HELD
    store.one(RestoreMoved(1, store.generation, 1, 1, stored=True))
    assert store.vouches() is Outcome.HELD
    store.one(NameCopy(1, store.generation, HERE))
    assert store.vouches() is Outcome.CLAIMED
    assert store.vouches(more=1) is Outcome.HELD
    store.now_us += REPAIR_WAIT_MS * 1_000
    store.one(EndRepair())
    assert store.vouches(THERE) is store.vouches(more=1) is Outcome.REFUSED


def test_what_nobody_ever_gets_is_dead_at_once_in_a_repair_too() -> None:
    """It was left waiting, and who owned the partition next delivered it."""
    store = _Store()
    store.run = "run-2"
    store.open(2)
    store.one(PlaceCopy(70, 1, then_dead=True))
    assert store.one(MarkDead(70, 1)).outcome is Outcome.HELD
    assert store.one(MarkDead(70, 1, claimed=True)).outcome is Outcome.DEAD


def test_the_copy_of_an_acked_message_ends_with_its_claim() -> None:
    """It was acked while it moved; its signature was of a key that the reader did not know."""
    store = _Store()
    store.origin.slot.state = State.FINISHED
    store.record.finish(1)
    assert store.vouches() is Outcome.CLAIMED
    claim = ClaimOrigin(1, store.generation, 1, HERE)
    assert store.one(claim).outcome is Outcome.FINISHED
