"""Origin records on every store: what is sent back, who may deliver its copy (R2, R4, R8, R14)."""

import itertools
from dataclasses import replace

import pytest

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.record.copies import ORIGIN_KEEP_MS
from ackd.core.record.operations import (
    Advance,
    ClaimOrigin,
    CloseOrigin,
    CopyRef,
    FinishOrigin,
    ForgetOriginRecords,
    Gap,
    Grant,
    LookUp,
    MarkDead,
    MoveToRetry,
    PlaceCopy,
    ReplayAck,
    ReplayFinished,
    Reset,
    RestoreClaimed,
    RestoreMoved,
    Settle,
    Truncate,
)
from ackd.core.record.protocol import CallStatus, Finish, OpResult
from ackd.core.record.transitions import Outcome, State, Verb
from ackd.engine.partition.copy_headers import GENERATION_MAX
from ackd.ports import Store
from ackd.store.keys import Keys
from tests.conftest import RedisFactory
from tests.contract.store.owner import Owner
from tests.contract.store.servers import connect, redis7, started
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

RETRY_COPY = (2, 70)
OTHER = (2, 71)


async def send(owner: Owner, offset: int) -> OpResult:
    """Send it back, its copy is stored, its place in the window is finished."""
    sent = await owner.one(MoveToRetry(offset, 1))
    assert (sent.outcome, sent.state) == (Outcome.SENT, State.MOVING)
    finish = FinishOrigin(offset, sent.fence, owner.rollback_epoch, Finish.SENT)
    assert (await owner.one(finish)).outcome is Outcome.DONE
    assert (await owner.one(finish)).outcome is Outcome.FINISHED
    return sent


async def claim(
    owner: Owner,
    offset: int,
    sent: OpResult,
    retry_copy: tuple[int, int] = RETRY_COPY,
    *,
    rollback_epoch: int | None = None,
    counted: bool = True,
) -> OpResult:
    """As the owner of the retry partition asks it, in the origin's record."""
    partition, place = retry_copy
    rollback_epoch = owner.rollback_epoch if rollback_epoch is None else rollback_epoch
    op = ClaimOrigin(
        offset, sent.fence, rollback_epoch, CopyRef(partition, place), must_deliver=not counted
    )
    reply = await owner.foreign(op)
    assert reply.verdict is CallStatus.OK
    return reply.results[0]


async def ended(owner: Owner, ack: Settle) -> None:
    """Wait for the deadline of a lease."""

    async def late() -> bool:
        return (await owner.one(LookUp(ack.offset, ack.fence, ack.rollback_epoch))).late

    await wait_until_async(late, "the end of a lease")


async def test_r4_a_live_lease_is_forwarded_and_its_token_goes_on_counting(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    (ack,) = await owner.grant(5)
    sent = await send(owner, 5)
    assert (await owner.open(again=True)).verdict is CallStatus.OK
    held = await claim(owner, 5, sent)
    assert (held.outcome, held.state) == (Outcome.HELD, State.LEASED)
    extended = await owner.foreign(ack._replace(verb=Verb.EXTEND, for_ms=600_000))
    assert extended.results[0].outcome is Outcome.EXTENDED
    assert (await claim(owner, 5, sent)).when_ms == extended.results[0].when_ms > held.when_ms
    assert (
        await owner.one(LookUp(ack.offset, ack.fence, ack.rollback_epoch))
    ).outcome is Outcome.HELD
    assert (await owner.foreign(ack)).results[0].outcome is Outcome.ACKED
    assert (await owner.one(ack)).outcome is Outcome.ALREADY_ACKED
    assert (await claim(owner, 5, sent)).outcome is Outcome.FINISHED
    assert (await claim(owner, 5, sent, OTHER)).outcome is Outcome.FINISHED


async def test_r15_where_a_message_is_can_be_asked_whoever_holds_it(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    moved, dead, acked, leased = await owner.grant(5, 6, 7, 8)

    async def where(offset: int) -> tuple[Outcome, State, int, CopyRef | None]:
        found = await owner.one(LookUp(offset, message=True))
        return found.outcome, found.state, found.attempt, found.copy

    sent = await send(owner, 5)
    assert await where(5) == (Outcome.LOST, State.LEASED, 1, None)
    await owner.one(moved._replace(verb=Verb.RETRY))
    assert await where(5) == (Outcome.LOST, State.WAITING, 1, None)
    assert (await claim(owner, 5, sent)).outcome is Outcome.CLAIMED
    assert await where(5) == (Outcome.LOST, State.MOVING, 1, CopyRef(*RETRY_COPY))
    assert (await owner.one(dead._replace(verb=Verb.DEAD))).outcome is Outcome.DEAD
    assert await where(6) == (Outcome.LOST, State.DEAD, 1, None)
    finish = FinishOrigin(6, dead.fence, owner.rollback_epoch, Finish.DEAD)
    assert (await owner.one(finish)).outcome is Outcome.DONE
    assert (await where(6))[:2] == (Outcome.LOST, State.DEAD)
    assert (await owner.one(acked)).outcome is Outcome.ACKED
    assert (await where(7))[:2] == (Outcome.ALREADY_ACKED, State.FINISHED)
    assert await where(leased.offset) == (Outcome.LOST, State.LEASED, 1, None)
    assert await where(9) == (Outcome.LOST, State.READY, 0, None)


async def test_r2_the_first_retry_copy_wins_and_is_told_the_same_again(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    (ack,) = await owner.grant(5)
    await owner.one(ack._replace(verb=Verb.RETRY, for_ms=90_000))
    sent = await send(owner, 5)
    first = await claim(owner, 5, sent)
    assert (first.outcome, first.state, first.attempt) == (Outcome.CLAIMED, State.WAITING, 1)
    assert first.when_ms > 0
    assert first.first_s > 0
    assert await claim(owner, 5, sent) == first
    assert (await claim(owner, 5, sent, OTHER)).outcome is Outcome.REFUSED
    older = sent._replace(fence=sent.fence - 1)
    assert (await claim(owner, 5, older)).outcome is Outcome.REFUSED
    # A repeat of the retry is told the same until the message is handed on (R17).
    again = ack._replace(verb=Verb.RETRY, for_ms=90_000)
    assert (await owner.foreign(again)).results[0].outcome is Outcome.LOST
    assert (await owner.foreign(ack)).results[0].outcome is Outcome.LOST


async def test_a_late_ack_is_told_to_the_retry_copy_and_a_claim_to_a_late_ack(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    acks = await owner.grant(1, 2, lease_ms=1)
    first, second = await send(owner, 1), await send(owner, 2)
    await ended(owner, acks[1])
    late = (await owner.foreign(acks[0])).results[0]
    assert (late.outcome, late.late) == (Outcome.ACKED, True)
    assert (await claim(owner, 1, first)).outcome is Outcome.FINISHED
    assert (await claim(owner, 2, second)).outcome is Outcome.CLAIMED
    assert (await owner.foreign(acks[1])).results[0].outcome is Outcome.LOST


async def test_sending_is_the_commit_point_and_is_read_by_the_next_owner(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    (ack,) = await owner.grant(5)
    sent = await owner.one(MoveToRetry(5, 1))
    assert (await owner.one(Grant.of(5, 1, 2))).outcome is Outcome.REFUSED
    assert (await owner.one(MarkDead(5, sent.fence))).outcome is Outcome.REFUSED
    await owner.call(Gap(5, 6))
    new = Owner(store, owner.key, name="other#1")
    (slot,) = (await new.open()).slots
    assert (slot.state, slot.fence, slot.rollback_epoch) == (
        State.MOVING,
        sent.fence,
        owner.rollback_epoch,
    )
    assert (await new.one(MoveToRetry(5, 1))).fence == sent.fence
    assert (await new.foreign(ack)).results[0].outcome is Outcome.ACKED
    assert (await new.open(again=True)).slots == []


async def test_a_claimed_retry_copy_gets_a_slot_once(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    place = PlaceCopy(70, 12345, attempt=4, due_ms=0, first_s=1_700_000_000)
    placed = await owner.one(place)
    assert (placed.outcome, placed.state, placed.attempt) == (Outcome.DONE, State.WAITING, 4)
    assert placed.first_s == 1_700_000_000
    assert await owner.one(place) == placed
    (ack,) = await owner.grant(70)
    assert ack.attempt == 5
    assert (await owner.one(place)).state is State.LEASED
    assert (await owner.one(ack)).outcome is Outcome.ACKED
    assert (await owner.one(place)).outcome is Outcome.FINISHED
    mark_dead = MarkDead(71, 12345)
    marked = (await owner.call(replace(place, offset=71), mark_dead)).results[1]
    assert (marked.outcome, marked.fence) == (Outcome.DEAD, 12345)


async def test_fences_go_on_after_the_largest_generation_that_a_copy_may_name(
    store: Store,
) -> None:
    """Whoever may write to the retry topic chooses it. Each lease has a fence of its own still, or
    the holder of one that ended could settle the next one.
    """
    owner = Owner(store)
    await owner.open()
    await owner.one(PlaceCopy(70, GENERATION_MAX, attempt=1))
    (ended_one,) = await owner.grant(70, lease_ms=1)
    await ended(owner, ended_one)
    (live,) = await owner.grant(70)
    assert GENERATION_MAX < ended_one.fence < live.fence
    assert (await owner.one(ended_one)).outcome is Outcome.LOST
    assert (await owner.one(live)).outcome is Outcome.ACKED


async def test_attempts_that_are_used_up_are_dead_lettered_unless_somebody_was_first(
    store: Store,
) -> None:
    owner = Owner(store)
    await owner.open()
    working, gone, released = await owner.grant(1, 2, 3)
    mark_dead = MarkDead(1, working.fence, deliveries_max=1)
    assert (await owner.one(mark_dead)).outcome is Outcome.HELD
    await owner.one(working)
    assert (await owner.one(mark_dead)).outcome is Outcome.FINISHED
    await owner.one(gone._replace(verb=Verb.RETRY, for_ms=90_000))
    assert (await owner.one(replace(mark_dead, offset=2, fence=1))).outcome is Outcome.LOST
    assert (await owner.one(replace(mark_dead, offset=2))).outcome is Outcome.DEAD
    await owner.one(released._replace(verb=Verb.RELEASE))
    fewer = await owner.one(replace(mark_dead, offset=3))
    assert (fewer.outcome, fewer.attempt) == (Outcome.REFUSED, 0)


async def test_a_closed_origin_record_tells_who_comes_too_late(store: Store) -> None:
    """What is dropped after a while is only needed by copies that are stored very late."""
    owner = Owner(store)
    await owner.open()
    (ack,) = await owner.grant(5)
    await owner.one(ack._replace(verb=Verb.RELEASE))
    sent = await send(owner, 5)
    close = CloseOrigin(5, sent.fence)
    await owner.foreign(close)
    assert (await claim(owner, 5, sent)).outcome is Outcome.CLAIMED
    await owner.foreign(close)
    await owner.call(Advance(6))
    assert (await claim(owner, 5, sent, OTHER)).outcome is Outcome.REFUSED


async def test_a_claim_of_what_the_record_does_not_know(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    await owner.call(Gap(0, 10))
    unknown = OpResult(Outcome.SENT, State.MOVING, 1, 1 << 50, 0, 0, late=False)
    forgotten = owner.rollback_epoch ^ 1
    assert (await claim(owner, 5, unknown)).outcome is Outcome.REFUSED
    assert (await claim(owner, 5, unknown, counted=False)).outcome is Outcome.LOST
    assert (await claim(owner, 5, unknown, rollback_epoch=forgotten)).outcome is Outcome.LOST
    again = await claim(owner, 12, unknown, rollback_epoch=forgotten)
    assert (again.outcome, again.when_ms > 0) == (Outcome.HELD, True)


async def test_r1_a_truncated_log_ends_what_lies_above_the_cut_and_keeps_what_is_below(
    store: Store,
) -> None:
    owner = Owner(store)
    await owner.open()
    low, waits, high, forwarded, sent_low = await owner.grant(2, 3, 8, 9, 4)
    assert waits.offset == 3
    await owner.one(waits._replace(verb=Verb.RETRY, for_ms=0))
    copies = [await send(owner, offset) for offset in (9, 4)]
    await owner.call(Gap(0, 2), Gap(6, 8), Advance(2))
    again = [Gap(each, each + 1) for each in (4, 6)]
    reply = await owner.call(Truncate(7, 2), *again)
    assert reply.watermark == 2
    snapshot = await owner.open()
    assert [slot.offset for slot in snapshot.slots] == [2, 3]
    assert [offset for offset in range(12) if offset in ChunkedBitmap.of(snapshot.chunks)] == [4, 6]
    assert (await owner.one(low)).outcome is Outcome.ACKED
    assert (await owner.one(high)).outcome is Outcome.LOST
    assert (await owner.one(forwarded)).outcome is Outcome.LOST
    assert (await claim(owner, 9, copies[0])).outcome is Outcome.FINISHED
    assert (await claim(owner, 4, copies[1])).outcome is Outcome.HELD
    assert (await owner.one(sent_low)).outcome is Outcome.ACKED


async def test_r8_a_reset_ends_the_origin_records_above_it_and_keeps_live_leases(
    store: Store,
) -> None:
    owner = Owner(store)
    await owner.open()
    low, high, ended = await owner.grant(1, 5, 6)
    await owner.one(ended._replace(verb=Verb.RETRY, for_ms=0))
    sent = [await send(owner, offset) for offset in (1, 5, 6)]
    await owner.call(Reset(4))
    assert (await claim(owner, 1, sent[0])).outcome is Outcome.HELD
    assert (await owner.one(low)).outcome is Outcome.ACKED
    assert (await claim(owner, 1, sent[0])).outcome is Outcome.FINISHED
    assert (await claim(owner, 5, sent[1])).outcome is Outcome.FINISHED
    assert (await claim(owner, 6, sent[2])).outcome is Outcome.FINISHED
    assert [(s.offset, s.state) for s in (await owner.open(again=True)).slots] == [
        (5, State.LEASED)
    ]
    assert (await owner.one(high)).outcome is Outcome.ACKED


async def test_r10_a_replayed_ack_is_told_to_the_retry_copy(store: Store) -> None:
    owner = Owner(store)
    await owner.open()
    acked, unsure = await owner.grant(1, 2, lease_ms=1)
    await ended(owner, unsure)
    sent = [await send(owner, offset) for offset in (1, 2)]
    await owner.call(ReplayAck(1), ReplayFinished(2))
    assert (await claim(owner, 1, sent[0])).outcome is Outcome.FINISHED
    assert (await owner.one(acked)).outcome is Outcome.ALREADY_ACKED
    assert (await claim(owner, 2, sent[1])).outcome is Outcome.CLAIMED
    assert (await owner.one(unsure)).outcome is Outcome.LOST


async def test_r10_a_forgotten_origin_record_is_written_again(store: Store) -> None:
    """By who sent it back, before or after the ack is repeated, and by who has claimed it."""
    owner = Owner(store)
    await owner.open()
    leases = await owner.grant(1, 2, 3, 4)
    generation = leases[0].fence + 5

    def again(offset: int) -> RestoreMoved:
        return RestoreMoved(offset, generation, 7, 1, stored=True)

    for _ in range(2):
        await owner.call(again(1))
        await owner.call(ReplayAck(2), again(2))
        await owner.foreign(RestoreClaimed(3, generation, 7, 1, CopyRef(1, 9)))
        await owner.call(RestoreMoved(4, generation, 7, 1))
    sent = OpResult(Outcome.SENT, State.MOVING, 1, generation, 0, 0, late=False)
    assert (await owner.one(leases[0])).outcome is Outcome.ACKED  # in the origin record, late
    assert (await claim(owner, 1, sent)).outcome is Outcome.FINISHED
    assert (await claim(owner, 2, sent)).outcome is Outcome.FINISHED
    assert (await owner.one(leases[2])).outcome is Outcome.LOST  # its copy has it
    assert (await claim(owner, 3, sent, (1, 9))).outcome is Outcome.CLAIMED
    assert (await claim(owner, 3, sent, (1, 8))).outcome is Outcome.REFUSED
    slots = (await owner.open(again=True)).slots
    assert [(s.offset, s.state, s.fence) for s in slots] == [(4, State.MOVING, generation)]


async def test_r10_an_ack_at_origin_record_is_remembered_without_the_origin_record(
    store: Store,
) -> None:
    """By who served it, whoever comes first: the ack, the finish, or the origin record (I2)."""
    owner = Owner(store)
    await owner.open()
    (lease,) = await owner.grant(1)
    sent = await send(owner, 1)
    acked = await owner.one(lease)
    assert (acked.outcome, acked.fence) == (Outcome.ACKED, sent.fence)
    generation = sent.fence + 5
    for at, order in enumerate(itertools.permutations(range(3)), 2):
        ops = (
            ReplayAck(at, generation),
            ReplayFinished(at),
            RestoreMoved(at, generation, 7, 1, stored=True, released=True),
        )
        await owner.foreign(*(ops[each] for each in order))
        told = OpResult(Outcome.SENT, State.MOVING, 1, generation, 0, 0, late=False)
        assert (await claim(owner, at, told)).outcome is Outcome.FINISHED
        again = lease._replace(offset=at)
        assert (await owner.one(again)).outcome is Outcome.ALREADY_ACKED


async def test_r14_evicted_origin_records_are_noticed_and_copies_delivered(
    own_redis: RedisFactory,
) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        acks = await owner.grant(1, 2)
        sent, rollback_epoch = await send(owner, 1), owner.rollback_epoch
        with server.client() as client:
            assert client.delete(Keys("ackd").ledger(owner.key)[:-1] + "p") == 1
        assert (await owner.call(MoveToRetry(2, 1))).verdict is CallStatus.CHUNK_LOST
        assert (await owner.call(Advance(1))).verdict is CallStatus.CHUNK_LOST
        op = ClaimOrigin(1, sent.fence, rollback_epoch, CopyRef(2, 70))
        assert (await owner.foreign(op)).verdict is CallStatus.CHUNK_LOST
        assert (await owner.one(acks[1])).outcome is Outcome.ACKED
        assert (await owner.open(again=True)).lost_origins
        new_rollback_epoch = rollback_epoch ^ 5
        await owner.call(ForgetOriginRecords(new_rollback_epoch))
        assert (await claim(owner, 1, sent, rollback_epoch=rollback_epoch)).outcome is Outcome.LOST
        snapshot = await owner.open(again=True)
        assert (snapshot.lost_origins, snapshot.rollback_epoch) == (False, new_rollback_epoch)


def test_origin_records_are_kept_longer_than_a_producer_tries() -> None:
    """R2: five minutes is the longest that an adapter lets its client try."""
    assert ORIGIN_KEEP_MS >= 2 * 300_000
