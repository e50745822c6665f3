"""Queues of blocked keys: the finished leave, the next may go, nobody waits for ever (R19)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ackd.core.ledger.order import key_hash
from ackd.core.record.operations import AskBlocker, ClaimOrigin, CloseOrigin, CopyRef, LookUp
from ackd.core.record.protocol import BlockedBy, OpResult
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.engine.partition.ordering import OriginRecordRef, origin_key
from ackd.engine.retry import key_queues as key_queues_module
from ackd.engine.retry.key_queues import AGAIN_MS, SOON_MS, SWEEP_MAX, SWEEP_MS
from tests.unit.engine.retry_stage import KEY, RETRY_TOPIC, RetryStage
from tests.unit.engine.world import World

CHAIN = key_hash(KEY)


@pytest.fixture
async def stage(world: World) -> AsyncIterator[RetryStage]:
    """Two messages of one key have moved; their leases are over."""
    stage = RetryStage(world)
    await stage.begin(ordered=True)
    stage.start(stage.claims)
    yield stage
    await stage.tasks.stop()


async def both(stage: RetryStage) -> tuple[RetryCopy, RetryCopy]:
    """The copies of two messages of one key, in the order of the messages."""
    first = await stage.moves_and_ends(0, key=KEY)
    await follows(stage, 1)
    (second,) = [
        replace(first, origin=replace(first.origin, offset=1), generation=origin.generation)
        for offset, origin in stage.record(stage.origin).origins.items()
        if offset == 1
    ]
    return first, second


async def follows(stage: RetryStage, *offsets: int) -> None:
    """The ledger finds that these must follow their blocked key."""
    ledger = stage.origin.ledger
    ledger.go_by(stage.rules, 0, 0, stage.world.clock.monotonic_ms())
    found = ledger.send_back.stuck(stage.world.clock.monotonic_ms())
    assert {*offsets} <= {each.offset for each in found}
    stage.origin.send_back(found)
    await stage.world.flusher.idle()


def ref(retry_copy: RetryCopy) -> OriginRecordRef:
    """Where its origin record is."""
    origin = retry_copy.origin
    return OriginRecordRef(
        origin_key(retry_copy), retry_copy.incarnation, origin.offset, retry_copy.generation
    )


def blocked(stage: RetryStage) -> list[int]:
    """Offsets in the queue of the key, as the store has them."""
    return stage.record(stage.origin).blocked.get(CHAIN, [])[:2]


async def test_r19_i6_the_second_copy_is_delivered_after_the_first_is_finished(
    stage: RetryStage,
) -> None:
    first, second = await both(stage)
    stage.start(stage.queues)
    stage.arrives(5, second)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 0
    assert stage.claims_counted("blocked") == 1
    stage.arrives(6, first)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 1
    assert blocked(stage) == [0, 1]
    (delivery,) = await stage.world.leases(stage.copies)
    assert delivery.record.offset == 0
    stage.copies.ledger.acked([6])
    stage.copies.perform()
    await asyncio.sleep(1)
    assert blocked(stage) == [1, 2]
    (delivery,) = await stage.world.leases(stage.copies)
    assert delivery.record.offset == 1


async def test_r19_claims_meet_the_queue_as_it_is(stage: RetryStage) -> None:
    """What is finished is reported before anything claims, by whoever is about to."""
    first, second = await both(stage)
    stage.arrives(6, first)
    await asyncio.sleep(0.01)
    stage.copies.ledger.finish(6)
    stage.arrives(7, second)
    await asyncio.sleep(0.01)
    assert stage.claims_counted("blocked") == 0
    assert stage.origin_record(1).claimed_by == CopyRef(0, 7)


async def test_while_the_store_is_away_a_finished_copy_is_reported_later(stage: RetryStage) -> None:
    first, _ = await both(stage)
    stage.arrives(6, first)
    await asyncio.sleep(0.01)
    stage.world.store.away = True
    stage.start(stage.queues)
    stage.queues.over(stage.copies, 6, ref(first))
    await asyncio.sleep(0.01)
    stage.world.store.away = False
    assert blocked(stage)[0] == 0
    await asyncio.sleep(AGAIN_MS / 1000 - 0.1)
    assert blocked(stage)[0] == 0
    await asyncio.sleep(0.2)
    assert blocked(stage)[0] == 1


async def test_a_record_that_is_gone_has_no_queues(stage: RetryStage) -> None:
    first, _ = await both(stage)
    del stage.world.data.records[stage.origin.key]
    stage.queues.over(stage.copies, 6, ref(first))
    await stage.queues.tell()
    stage.world.clock.pass_ms(2 * AGAIN_MS)
    asked = len(stage.world.store.asked)
    await stage.queues.tell()
    assert len(stage.world.store.asked) == asked


async def test_r10_a_confirmed_leave_is_kept_for_replay(
    stage: RetryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await both(stage)
    kept: list[object] = []
    monkeypatch.setattr(stage.world.context.replay_log, "confirmed", lambda *of: kept.extend(of[2]))
    stage.queues.over(stage.copies, 6, ref(first))
    await stage.queues.tell()
    assert kept == [CloseOrigin(0, first.generation, finished=CopyRef(0, 6))]


# --- a former owner died before it reported


def behind(first: RetryCopy, copy: CopyRef | None) -> OpResult:
    """The answer that a claim gets while this copy is the first of the key."""
    return OpResult.blocked(BlockedBy(first.origin.offset, copy))


async def finished_unseen(stage: RetryStage, first: RetryCopy, at: int) -> None:
    """The first copy has claimed and is finished, and its origin record was never told."""
    stage.arrives(at, first)
    await asyncio.sleep(0.01)
    assert stage.origin_record(0).claimed_by == CopyRef(0, at)
    stage.copies.ledger.finish(at)
    assert stage.copies.ledger.drain()  # what a killed sidecar does not do


async def test_r19_a_waiting_copy_reports_the_one_before_it(stage: RetryStage) -> None:
    first, second = await both(stage)
    await finished_unseen(stage, first, 6)
    stage.arrives(7, second)
    await asyncio.sleep(0.01)
    assert blocked(stage)[0] == 0
    stage.start(stage.queues)
    await asyncio.sleep(0.01)
    assert blocked(stage)[0] == 1
    assert stage.origin_record(1).claimed_by == CopyRef(0, 7)


async def test_r19_a_first_copy_that_is_not_finished_is_not_reported(stage: RetryStage) -> None:
    first, second = await both(stage)
    stage.arrives(6, first)
    stage.arrives(7, second)
    stage.start(stage.queues)
    await asyncio.sleep(0.01)
    assert blocked(stage)[0] == 0
    assert stage.origin_record(1).claimed_by is None


async def test_r19_an_own_ledger_that_is_being_read_again_proves_nothing(
    stage: RetryStage,
) -> None:
    first, second = await both(stage)
    await finished_unseen(stage, first, 6)
    stage.arrives(7, second)
    await asyncio.sleep(0.01)
    stage.copies.ledger.must_reread()
    stage.start(stage.queues)
    await asyncio.sleep(0.01)
    assert blocked(stage)[0] == 0


async def test_r19_of_a_copy_elsewhere_the_store_is_asked(stage: RetryStage) -> None:
    """Another sidecar owns its partition of the retry topic."""
    first, second = await both(stage)
    other = await stage.owns_copies(1)
    stage.arrives(0, first, into=other)
    await asyncio.sleep(0.01)
    stage.world.partitions.remove(other)
    result = behind(first, CopyRef(1, 0))
    stage.arrives(7, second)
    await asyncio.sleep(0.01)
    stage.start(stage.queues)
    await asyncio.sleep(0.01)
    assert [op.offset for op in stage.asked(LookUp)] == [0]
    assert blocked(stage)[0] == 0
    record = stage.record(other)
    record.finish(0)
    stage.world.store.away = True
    stage.queues.waits(stage.copies, 7, ref(second), result)
    await asyncio.sleep(0.01)
    assert blocked(stage)[0] == 0
    stage.world.store.away = False
    stage.queues.waits(stage.copies, 7, ref(second), result)
    await asyncio.sleep(0.01)
    assert blocked(stage)[0] == 1


async def test_r19_while_the_retry_topic_is_not_known_nothing_is_decided(
    stage: RetryStage,
) -> None:
    first, second = await both(stage)
    del stage.world.topics.known[RETRY_TOPIC]
    stage.queues.waits(stage.copies, 7, ref(second), behind(first, CopyRef(1, 0)))
    stage.start(stage.queues)
    await asyncio.sleep(0.01)
    assert (stage.asked(LookUp), blocked(stage)[0]) == ([], 0)


async def test_a_first_copy_that_nobody_claimed_yet_is_waited_for(stage: RetryStage) -> None:
    """Its own claim reports it."""
    first, second = await both(stage)
    stage.queues.waits(stage.copies, 7, ref(second), behind(first, None))
    stage.start(stage.queues)
    await asyncio.sleep(0.01)
    assert (stage.asked(LookUp), stage.asked(CloseOrigin)) == ([], [])


# --- the owner of the origin asks


async def test_r19_a_key_whose_last_copy_ended_is_free_for_new_messages(stage: RetryStage) -> None:
    """Nobody else may come to tell the owner."""
    first = await stage.moves_and_ends(0, key=KEY)
    stage.start(stage.queues)
    await asyncio.sleep(0.01)
    assert list(stage.origin.ledger.send_back.blocked) == [CHAIN]
    stage.arrives(6, first)
    await asyncio.sleep(0.01)
    stage.copies.ledger.acked([6])
    stage.copies.perform()
    await asyncio.sleep((SOON_MS + 50) / 1000)
    assert blocked(stage) == []
    assert list(stage.origin.ledger.send_back.blocked) == []


async def test_r19_the_sweep_reports_a_finished_first_copy_too(stage: RetryStage) -> None:
    first = await stage.moves_and_ends(0, key=KEY)
    await finished_unseen(stage, first, 6)
    stage.start(stage.queues)
    await asyncio.sleep((SWEEP_MS + SOON_MS) / 1000)
    assert blocked(stage) == []


async def test_only_who_may_grant_asks_for_its_blocked_keys(
    stage: RetryStage,
) -> None:
    await stage.moves_and_ends(0, key=KEY)
    stage.origin.repairing = True
    stage.start(stage.queues)
    await asyncio.sleep(SWEEP_MS / 1000 + 0.01)
    assert stage.asked(AskBlocker) == []


# --- bounds


async def test_i8_a_sweep_asks_for_some_keys_and_the_next_for_the_others(
    stage: RetryStage,
) -> None:
    await stage.moves_and_ends(0, key=KEY)
    order = stage.origin.ledger.order
    assert order is not None
    for key in range(1, SWEEP_MAX + 50):
        order.block(CHAIN + key)
        stage.record(stage.origin).blocked[CHAIN + key] = [0]
    count = len(stage.origin.ledger.send_back.blocked)
    assert count > SWEEP_MAX
    stage.start(stage.queues)
    await asyncio.sleep(0.01)
    assert len(stage.asked(AskBlocker)) == SWEEP_MAX
    await asyncio.sleep(SWEEP_MS / 1000)
    assert len({op.key for op in stage.asked(AskBlocker)}) == count


async def test_i8_finished_copies_are_remembered_within_a_bound_and_told_in_batches(
    stage: RetryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting copy finds those that were forgotten."""
    monkeypatch.setattr(key_queues_module, "OVER_MAX", 3)
    monkeypatch.setattr(key_queues_module, "BATCH_MAX", 2)
    first = await stage.moves_and_ends(0, key=KEY)
    for at in range(5):
        stage.queues.over(stage.copies, at, ref(first))
    await stage.queues.tell()
    assert [op.finished.offset for op in stage.asked(CloseOrigin)] == [2, 3, 4]
    assert [len(call.ops) for call in stage.calls(CloseOrigin)] == [2, 1]
    assert stage.asked(ClaimOrigin) == []
