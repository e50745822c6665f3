"""What a partition puts back after a call that the store refused, or did not answer (R10, R12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from ackd.core.ledger.effects import Claim, SendDead, StoreForeignDelays
from ackd.core.ledger.entry import EntryStatus
from ackd.core.ledger.grants import grants
from ackd.core.ledger.send_back import Rules, Stuck, Why
from ackd.core.record.operations import Gap, MarkDead, Op, PlaceCopy, Settle
from ackd.core.record.protocol import Open, RecordCall, RecordReply
from ackd.core.record.transitions import Verb
from ackd.engine.partition.partition import CLAIM_AGAIN_MS, Partition, Policy
from ackd.errors import StoreUnknownError
from tests.unit.engine.partition.test_partition_reload import reread
from tests.unit.engine.world import LEASE_MS, World

STUCK_MS = 60_000
MOVES = Policy(Rules(STUCK_MS, STUCK_MS, 1_000), 0, retry_copies=False)
ONCE = Policy(None, 1, retry_copies=False)
COPIES = Policy(None, 0, retry_copies=True)
NOTHING_DECIDED = pytest.mark.parametrize("how", ["away", "refused"])


@contextmanager
def failing(world: World, partition: Partition, how: str) -> Iterator[None]:
    """Calls find the store away, or are lost; or the record refuses them, as it knows another
    server run.
    """
    record = world.data.records[partition.key]
    run = record.run
    if how == "refused":
        record.run = "another"
    else:
        setattr(world.store, how, True)
    yield
    record.run, world.store.away, world.store.lost = run, False, False


async def fails(world: World, partition: Partition, how: str, *ops: Op) -> None:
    """A call with these operations, and all upkeep, fails."""
    with failing(world, partition, how):
        partition.tell(*ops)
        await world.flusher.idle()


def time_passes(world: World, partition: Partition, ms: int) -> None:
    """Leases end, and what waits becomes due."""
    world.clock.pass_ms(ms)
    partition.ledger.tick(world.clock.monotonic_ms())
    partition.perform()


# --- put back


@pytest.mark.parametrize("how", ["away", "lost", "refused"])
async def test_gaps_of_a_failed_call_go_with_the_next_one(world: World, how: str) -> None:
    """No fetch brings them again: nobody else would ever finish these offsets."""
    partition = await world.owns(0, [0, 5])
    await fails(world, partition, how)
    assert partition.has_upkeep
    assert partition.upkeep() == [Gap(1, 5)]
    assert partition.upkeep() == []


@NOTHING_DECIDED
async def test_messages_whose_grant_failed_are_ready_again(world: World, how: str) -> None:
    partition = await world.owns(0, range(3))
    take = partition.ledger.grants.take
    await fails(world, partition, how, *grants(take(2, 1 << 62), LEASE_MS, partition.next_grant()))
    assert take(3, 1 << 62) == [0, 1, 2]


async def test_whoever_asks_for_messages_hears_that_they_are_ready_again(world: World) -> None:
    partition = await world.owns(0, range(1))
    ops = grants(partition.ledger.grants.take(1, 1 << 62), LEASE_MS, partition.next_grant())
    world.events.seen.clear()
    await fails(world, partition, "away", *ops)
    assert "ready" in world.events.seen
    assert partition.grantable


@NOTHING_DECIDED
async def test_a_stuck_message_whose_move_failed_is_found_again(world: World, how: str) -> None:
    partition = await world.owns(0, range(2), policy=MOVES)
    await world.leases(partition, lease_ms=3 * STUCK_MS)
    world.clock.pass_ms(STUCK_MS + 1_000)
    send_back, now_ms = partition.ledger.send_back, world.clock.monotonic_ms()
    found = send_back.stuck(now_ms)
    assert found == [Stuck(0, Why.AGE)]
    with failing(world, partition, how):
        partition.send_back(found)
        await world.flusher.idle()
    assert not send_back.asking
    if how == "away":  # else the record must be read again first
        assert send_back.stuck(now_ms) == found


@NOTHING_DECIDED
async def test_a_copy_whose_claim_was_not_written_claims_again(world: World, how: str) -> None:
    partition = await world.owns(0, range(1), policy=COPIES)
    await fails(world, partition, how, PlaceCopy(0, generation=5, attempt=1))
    time_passes(world, partition, CLAIM_AGAIN_MS - 1)
    assert world.events.effects == [Claim(0)]
    time_passes(world, partition, 1)
    assert world.events.effects == [Claim(0), Claim(0)]
    assert ("reload" in world.events.seen) is (how == "refused")


async def test_a_message_that_the_store_could_not_mark_dead_is_dead_after_the_reread(
    world: World,
) -> None:
    """Only the record, read again, makes the ledger ask once more."""
    partition = await world.owns(0, range(1), policy=ONCE)
    await world.leases(partition)
    with failing(world, partition, "away"):
        time_passes(world, partition, LEASE_MS)
        await world.flusher.idle()
    assert "reload" in world.events.seen
    await reread(world, partition)
    time_passes(world, partition, 0)
    await world.flusher.idle()
    assert isinstance(world.events.effects[-1], SendDead)


async def test_a_clients_delay_that_was_not_written_is_written_after_the_reread(
    world: World,
) -> None:
    partition = await world.owns()
    intake = partition.ledger.intake
    delay = StoreForeignDelays(((0, 2, world.clock.wall_ms() + 1_000),))
    intake.foreign_delays(intake.session, [(0, delay.messages[0][2], 2)])
    world.fetches(partition, range(1))
    assert world.events.effects == [delay]
    await fails(world, partition, "away", PlaceCopy(0, attempt=2, due_ms=delay.messages[0][2]))
    assert world.events.seen.count("reload") == 1
    await reread(world, partition)
    partition.perform()
    assert world.events.effects == [delay, delay]


# --- nobody knows


async def test_r12_messages_of_an_unanswered_grant_wait_for_the_reread(world: World) -> None:
    """The store may have leased them: they are not ready, and nothing is granted."""
    partition = await world.owns(0, range(2))
    ops = grants(partition.ledger.grants.take(1, 1 << 62), LEASE_MS, partition.next_grant())
    await fails(world, partition, "lost", *ops)
    entry = partition.ledger.entry(0)
    assert entry is not None
    assert entry.status is EntryStatus.GRANTING
    assert world.events.seen.count("reload") == 1
    assert not partition.grantable


async def test_r12_a_lease_whose_answer_was_lost_is_given_back_without_counting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await world.owns(0, range(1))
    ops = grants(partition.ledger.grants.take(1, 1 << 62), LEASE_MS, partition.next_grant())
    decide = world.store.apply

    async def without_answer(calls: Sequence[RecordCall]) -> list[RecordReply]:
        await decide(calls)
        raise StoreUnknownError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "apply", without_answer)
        partition.tell(*ops)
        await world.flusher.idle()
    await reread(world, partition)
    (delivery,) = await world.leases(partition)
    assert delivery.attempt == 1


# --- refused


@pytest.mark.parametrize("how", ["lost", "refused"])
async def test_r10_the_record_is_read_again_before_anything_is_granted(
    world: World, how: str
) -> None:
    partition = await world.owns(0, range(1))
    await fails(world, partition, how)
    assert world.events.seen.count("reload") == 1
    assert not partition.grantable
    await reread(world, partition)
    assert partition.grantable


async def test_a_store_that_is_away_is_no_reason_to_read_again(world: World) -> None:
    partition = await world.owns(0, range(1))
    await fails(world, partition, "away")
    assert "reload" not in world.events.seen
    assert partition.grantable


async def test_who_lost_the_partition_says_so_and_reads_nothing_again(world: World) -> None:
    partition = await world.owns(0, range(1))
    other = Open(partition.key, "pod-2/1", rollback_epoch=9, incarnation=9, grace_ms=0)
    await world.store.open(other)
    partition.tell()
    await world.flusher.idle()
    assert world.events.seen.count("lost") == 1
    assert "reload" not in world.events.seen


async def test_a_refused_mark_dead_leads_to_a_reread(world: World) -> None:
    """The record has another lease of the message than this owner knows."""
    partition = await world.owns(0, range(1), policy=ONCE)
    await world.leases(partition)
    entry = partition.ledger.entry(0)
    assert entry is not None
    partition.tell(MarkDead(0, entry.fence - 1, 1))
    await world.flusher.idle()
    assert world.events.seen.count("reload") == 1


async def test_a_mark_dead_that_comes_too_soon_is_no_reason_to_read_again(world: World) -> None:
    """Somebody extended the lease at another sidecar."""
    partition = await world.owns(0, range(1), policy=ONCE)
    await world.leases(partition)
    entry = partition.ledger.entry(0)
    assert entry is not None
    extend = Settle(Verb.EXTEND, 0, entry.fence, 1, entry.attempt, 2 * LEASE_MS)
    await world.flusher.submit(world.handle(), [extend])
    time_passes(world, partition, LEASE_MS)
    await world.flusher.idle()
    assert entry.status is EntryStatus.LEASED
    assert "reload" not in world.events.seen
