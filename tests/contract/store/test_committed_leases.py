"""Leases of what a commit has passed, after a failover: the script decides like the record
(`origin.decides`; R10, I7).
"""

from collections.abc import Callable
from typing import Any

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.record.decide import REPAIR_WAIT_MS
from ackd.core.record.operations import (
    Advance,
    ClaimOrigin,
    CopyRef,
    EndRepair,
    FinishOrigin,
    Grant,
    LookUp,
    MoveToRetry,
    Op,
    ReplayAck,
    RestoreClaimed,
    RestoreMoved,
    Settle,
)
from ackd.core.record.protocol import Finish, Open, OpResult, RecordCall
from ackd.core.record.settles import OF_VERB
from ackd.core.record.transitions import Outcome, Verb
from tests.contract.store.test_differential import RUNS, Pair

MINUTE_MS = 60_000
GENERATION = 5_000
SETTLES = [verb for verb in OF_VERB if verb is not Verb.ACK]


class _Passed:
    """Messages 1 to 3 are leased, the server fails over, and a commit's word moves the watermark
    past 1 and 2, before or after that. `sent`: which of them was sent back under its lease.
    """

    def __init__(
        self, client: Any, *, before: bool, sent: int = 0, lease_ms: int = MINUTE_MS
    ) -> None:
        client.flushall()
        self.pair = Pair(client, LedgerKey("c", "s", bytes(16), 0))
        self._open(3, term=0)
        self.leases = [self.one(Grant.of(o, lease_ms, 1)) for o in (1, 2, 3)]
        self.generation = 0
        if sent:
            self.generation = self.one(MoveToRetry(sent, 2)).fence
            self.one(FinishOrigin(sent, self.generation, 3, Finish.SENT))
        if before:
            self.one(Advance(3))
        self.pair.run = RUNS[1]
        self._open(4, term=self.pair.term)
        if not before:
            self.one(Advance(3))

    def _open(self, rollback_epoch: int, term: int) -> None:
        self.pair.open(Open(self.pair.key, "a#1", rollback_epoch, 9, 0, create_at=0, term=term))

    def one(self, op: Op) -> OpResult:
        """As the owner; the pair compares the script with the record."""
        self.pair.now_us += 1_000
        self.pair.seq += 1
        return self.pair.apply(
            RecordCall(self.pair.key, [op], self.pair.term, self.pair.seq)
        ).results[0]

    def settle(
        self, verb: Verb, offset: int = 1, rollback_epoch: int = 3, *, counted: bool = True
    ) -> OpResult:
        """With the token of before the failover."""
        fence = self.leases[offset - 1].fence
        if verb is Verb.LOOK_UP:
            return self.one(LookUp(offset, fence, rollback_epoch))
        return self.one(Settle(verb, offset, fence, rollback_epoch, 1, MINUTE_MS, counted=counted))


def _wait(store: _Passed) -> None:
    store.pair.now_us += (REPAIR_WAIT_MS + 1) * 1_000


def _replayed(store: _Passed) -> None:
    store.one(EndRepair())


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("verb", SETTLES)
def test_i7_its_lease_is_not_lost_before_the_repair_is_over(
    client: Any, verb: Verb, *, before: bool
) -> None:
    store = _Passed(client, before=before)
    assert store.settle(verb).outcome is Outcome.UNREPAIRED
    assert store.settle(verb, rollback_epoch=4).outcome is Outcome.LOST  # no token of before
    assert store.settle(verb, 3).outcome not in (Outcome.LOST, Outcome.UNREPAIRED)  # not passed
    assert store.settle(Verb.LOOK_UP).outcome is Outcome.ALREADY_ACKED


@pytest.mark.parametrize("ended", [_wait, _replayed])
@pytest.mark.parametrize("verb", SETTLES)
def test_it_is_lost_once_the_repair_is_over(
    client: Any, verb: Verb, ended: Callable[[_Passed], None]
) -> None:
    store = _Passed(client, before=False)
    ended(store)
    assert store.settle(verb).outcome is Outcome.LOST


@pytest.mark.parametrize("before", [False, True])
def test_i2_its_ack_is_kept_whatever_comes(client: Any, *, before: bool) -> None:
    store = _Passed(client, before=before)
    assert store.settle(Verb.ACK).outcome is Outcome.ALREADY_ACKED


@pytest.mark.parametrize("verb", SETTLES)
def test_r10_its_origin_record_decides_as_soon_as_it_is_restored(client: Any, verb: Verb) -> None:
    store = _Passed(client, before=False)
    generation = store.pair.now_us + GENERATION
    store.one(RestoreMoved(1, generation, 3, 1, stored=True, released=True))
    assert store.settle(Verb.EXTEND, counted=False).outcome is Outcome.EXTENDED
    assert store.settle(verb).outcome not in (Outcome.LOST, Outcome.UNREPAIRED)


def test_r4_a_origin_record_that_is_known_decides_at_once(client: Any) -> None:
    store = _Passed(client, before=False, sent=2)
    assert store.settle(Verb.EXTEND, 1).outcome is Outcome.UNREPAIRED
    assert store.settle(Verb.LOOK_UP, 2).outcome is Outcome.HELD
    assert store.settle(Verb.EXTEND, 2).outcome is Outcome.EXTENDED
    assert store.settle(Verb.ACK, 2).outcome is Outcome.ACKED


def _claimed(store: _Passed) -> None:
    """Who has claimed the copy of message 2 says so: (partition 5, offset 70)."""
    store.one(RestoreClaimed(2, store.generation, 3, 1, CopyRef(5, 70)))


@pytest.mark.parametrize("verb", [Verb.ACK, *SETTLES])
def test_i2_a_late_settle_waits_for_who_may_have_claimed_the_copy(client: Any, verb: Verb) -> None:
    """Told `acked`, its message would come again: the copy was handed out before the failover."""
    store = _Passed(client, before=False, sent=2, lease_ms=1)
    assert store.settle(verb, 2).outcome is Outcome.UNREPAIRED
    _claimed(store)
    assert store.settle(verb, 2).outcome is Outcome.LOST


@pytest.mark.parametrize("ended", [_wait, _replayed])
def test_a_late_ack_counts_when_nobody_says_so(
    client: Any, ended: Callable[[_Passed], None]
) -> None:
    store = _Passed(client, before=False, sent=2, lease_ms=1)
    assert store.settle(Verb.EXTEND, 2, counted=False).outcome is Outcome.EXTENDED  # a repair
    store = _Passed(client, before=False, sent=2, lease_ms=1)
    ended(store)
    assert store.settle(Verb.ACK, 2).outcome is Outcome.ACKED


def test_i2_an_ack_that_was_told_counts_for_a_copy_that_was_claimed(client: Any) -> None:
    """A second failover forgot the ack; it is repeated after the claim, by the same generation."""
    store = _Passed(client, before=False, sent=2, lease_ms=1)
    _claimed(store)
    store.one(ReplayAck(2, store.generation))
    claim = ClaimOrigin(2, store.generation, 3, CopyRef(5, 70))
    assert store.one(claim).outcome is Outcome.FINISHED
