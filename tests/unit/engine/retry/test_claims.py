"""A retry copy is delivered after its origin record allowed it, once, and never by guess (R2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ackd.core.dead_letter_key import dead_key
from ackd.core.ids import LedgerKey
from ackd.core.ledger.claims import CLAIM_AGAIN_MS as LEASED_AGAIN_MS
from ackd.core.record.maintenance import epoch_mark
from ackd.core.record.operations import (
    ClaimOrigin,
    CloseOrigin,
    CopyRef,
    PlaceCopy,
    ReplayAck,
    RestoreClaimed,
)
from ackd.core.record.protocol import MessageTexts
from ackd.core.record.transitions import Outcome, State, Verb
from ackd.engine.partition.partition import CLAIM_AGAIN_MS
from ackd.engine.retry import claims as claims_module
from ackd.errors import StoreError
from tests.unit.engine.retry_stage import RetryStage, dead_letter
from tests.unit.engine.world import LEASE_MS, NAME, TOPIC_ID, World

PLACE = (TOPIC_ID, 0)


@pytest.fixture
async def stage(world: World) -> AsyncIterator[RetryStage]:
    stage = RetryStage(world)
    await stage.begin()
    stage.start(stage.claims)
    yield stage
    await stage.tasks.stop()


# --- may it be delivered


async def test_r2_a_copy_is_delivered_once_its_claim_is_in_both_records(stage: RetryStage) -> None:
    retry_copy = await stage.moves_and_ends()
    stage.arrives(7, retry_copy)
    assert stage.copies.ledger.ready == 0
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 1
    origin = stage.origin_record(0)
    assert origin.claimed_by == CopyRef(0, 7)
    assert 7 in stage.record(stage.copies).slots
    (delivery,) = await stage.world.leases(stage.copies)
    assert (delivery.topic, delivery.record.offset, delivery.attempt) == ("orders", 0, 2)
    assert stage.claims_counted("claimed") == 1


async def test_r2_the_origin_record_is_closed_only_after_the_copy_has_its_own_slot(
    stage: RetryStage,
) -> None:
    stage.arrives(7, await stage.moves_and_ends())
    await asyncio.sleep(0.01)
    kinds = [
        type(op)
        for call in stage.world.store.asked
        for op in call.ops
        if isinstance(op, ClaimOrigin | PlaceCopy | CloseOrigin)
    ]
    assert kinds == [ClaimOrigin, PlaceCopy, CloseOrigin]
    assert stage.origin_record(0).closed_ms


async def test_r2_a_second_copy_of_a_message_is_finished_without_a_word(stage: RetryStage) -> None:
    retry_copy = await stage.moves_and_ends()
    for at in (7, 8):
        stage.arrives(at, retry_copy)
        await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 1
    assert stage.copies.ledger.entry(8) is None
    assert stage.claims_counted("duplicate") == 1


async def test_r2_a_copy_of_an_earlier_move_is_finished(stage: RetryStage) -> None:
    retry_copy = await stage.moves_and_ends()
    stage.arrives(7, replace(retry_copy, generation=retry_copy.generation - 1))
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.entry(7) is None
    assert stage.origin_record(0).claimed_by is None


async def test_copies_of_one_origin_partition_claim_in_one_call(stage: RetryStage) -> None:
    found = [await stage.moves_and_ends(offset) for offset in range(3)]
    for at, retry_copy in enumerate(found):
        stage.arrives(at, retry_copy)
    await asyncio.sleep(0.01)
    assert [len(call.ops) for call in stage.calls(ClaimOrigin)] == [3]
    assert stage.copies.ledger.ready == 3


async def test_what_is_dead_in_its_origin_is_dead_here_at_once(stage: RetryStage) -> None:
    """Its copy goes to the dead-letter topic, and is never delivered (R4)."""
    retry_copy = await stage.moves()
    assert (await stage.settles(Verb.DEAD, retry_copy)).outcome is Outcome.DEAD
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    assert stage.record(stage.copies).slots[7].state is State.DEAD
    assert stage.copies.ledger.ready == 0


async def test_a_delay_of_the_original_goes_on_in_the_copy(stage: RetryStage) -> None:
    retry_copy = await stage.moves()
    told = await stage.settles(Verb.RETRY, retry_copy, for_ms=60_000)
    stage.arrives(7, replace(retry_copy, due_ms=1))
    await asyncio.sleep(0.01)
    slot = stage.record(stage.copies).slots[7]
    assert (slot.state, slot.when_ms, slot.attempt) == (State.WAITING, told.when_ms, 1)


async def test_the_reasons_that_the_origin_record_keeps_come_with_the_claim(
    stage: RetryStage,
) -> None:
    retry_copy = await stage.moves()
    await stage.settles(Verb.RETRY, retry_copy, for_ms=1, error="no disk")
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    (found,) = await stage.world.store.texts(stage.copies.key, [7])
    assert found is not None
    assert (found.first, found.last) == (b"no disk", b"no disk")


# --- a live lease


async def test_r4_a_copy_waits_for_the_forwarded_lease_and_an_ack_finishes_it(
    stage: RetryStage,
) -> None:
    retry_copy = await stage.moves()
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 0
    assert list(stage.claims.held[PLACE]) == [0]
    result = await stage.settles(Verb.ACK, retry_copy)
    stage.claims.settled(stage.origin.key, 0, result.outcome, result.when_ms)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.entry(7) is None
    assert stage.claims.held == {}
    assert [stage.claims_counted(each) for each in ("held", "finished")] == [1, 1]


async def test_r4_i4_another_deadline_counts_from_when_it_is_known(stage: RetryStage) -> None:
    """A later one changes nothing now. With an earlier one the copy claims again at once."""
    retry_copy = await stage.moves()
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    key, until_ms = stage.origin.key, stage.claims.held[PLACE][0][2]
    for outcome, when_ms, claims in [
        (Outcome.EXTENDED, until_ms + 1, 1),
        (Outcome.EXTENDED, until_ms, 1),
        (Outcome.EXTENDED, until_ms - 1, 2),
        (Outcome.RETRYING, until_ms + 5, 3),
    ]:
        stage.claims.settled(key, 0, outcome, when_ms)
        await asyncio.sleep(0.01)
        assert len(stage.asked(ClaimOrigin)) == claims


async def test_r4_a_settle_of_anybody_else_changes_nothing(stage: RetryStage) -> None:
    stage.arrives(7, await stage.moves())
    await asyncio.sleep(0.01)
    stage.claims.settled(stage.origin.key, 1, Outcome.ACKED, 0)
    stage.claims.settled(stage.origin.key._replace(partition=1), 0, Outcome.ACKED, 0)
    await asyncio.sleep(0.01)
    assert len(stage.asked(ClaimOrigin)) == 1


async def test_r16_what_others_settle_in_an_own_partition_is_read_from_its_journal(
    stage: RetryStage,
) -> None:
    retry_copy = await stage.moves()
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    await stage.settles(Verb.ACK, retry_copy, here=False)
    assert stage.copies.ledger.entry(7) is not None
    await stage.origin.flush()
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.entry(7) is None


async def test_i4_the_owner_asks_again_while_a_lease_is_live(stage: RetryStage) -> None:
    """At the lease's end, or some seconds later at the latest: it may be over by then."""
    stage.arrives(7, await stage.moves(lease_ms=LEASE_MS))
    await asyncio.sleep(0.01)
    entry = stage.copies.ledger.entry(7)
    assert entry is not None
    in_ms = entry.due_ms - stage.world.clock.monotonic_ms()
    assert 0 < in_ms <= LEASED_AGAIN_MS < LEASE_MS


async def test_a_reason_given_under_the_lease_of_the_original_is_kept_for_the_next_copy(
    stage: RetryStage,
) -> None:
    retry_copy = await stage.moves()
    assert not stage.claims.failed_with(PLACE, 0, "nobody waits yet")
    stage.origin.copies.failed_with(0, "before")
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    assert stage.claims.failed_with(PLACE, 0, "after")
    assert stage.copies.copies.errors(7) == ("before", "after")
    assert stage.origin.copies.errors(0) == ("", "")
    assert not stage.claims.failed_with(PLACE, 1, "another message")


# --- what nobody knows


async def test_r25_what_ackd_did_not_write_is_dead_at_once(
    stage: RetryStage, caplog: pytest.LogCaptureFixture
) -> None:
    """It claims nothing, and nobody gets it; it is in the record, so the next owner goes on."""
    for at in range(2):
        stage.arrives(at, None)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 0
    assert [stage.record(stage.copies).slots[at].state for at in range(2)] == [State.DEAD] * 2
    assert stage.asked(ClaimOrigin) == []
    assert (stage.claims_counted("aside"), stage.claims_counted("foreign")) == (2, 0)
    [line] = caplog.records  # further ones are counted
    assert (line.levelname, "it has no ackd-subscription" in line.message) == ("WARNING", True)


async def test_r25_a_copy_of_another_subscription_is_delivered_as_it_is(stage: RetryStage) -> None:
    """That may be this one, under the name that it had before."""
    retry_copy = await stage.moves()
    stage.arrives(7, replace(retry_copy, subscription="before"))
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 1
    assert stage.asked(ClaimOrigin) == []
    assert (stage.claims_counted("aside"), stage.claims_counted("foreign")) == (0, 1)


async def test_r2_a_copy_whose_record_nobody_knows_is_delivered_and_counted(
    stage: RetryStage,
) -> None:
    retry_copy = await stage.moves_and_ends()
    del stage.world.data.records[stage.origin.key]
    stage.arrives(7, replace(retry_copy, attempt=3, due_ms=0))
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 1
    assert stage.claims_counted("unknown") == 1
    assert stage.record(stage.copies).slots[7].attempt == 3


async def test_r25_a_copy_from_another_cluster_is_not_shown_under_a_name_of_this_one(
    stage: RetryStage,
) -> None:
    retry_copy = await stage.moves_and_ends()
    stage.arrives(7, replace(retry_copy, origin=replace(retry_copy.origin, cluster="far")))
    await asyncio.sleep(0.01)
    assert stage.claims_counted("foreign") == 1
    (delivery,) = await stage.world.leases(stage.copies)
    assert (delivery.topic, delivery.record.offset) == ("ackd.retry.work", 7)
    assert stage.origin_record(0).claimed_by is None


async def test_r1_only_a_copy_of_a_deleted_topic_passes_a_record_that_refuses(
    stage: RetryStage,
) -> None:
    """A record that knows another server run answers no claim. Its owner opens it again, unless
    the topic is gone for good.
    """
    retry_copy = await stage.moves_and_ends()
    stage.record(stage.origin).run = "another"
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 0
    stage.world.consumer.away = True
    stage.claims.claim(stage.copies, 7)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 0
    stage.world.consumer.away = False
    stage.world.consumer.known = [
        each for each in stage.world.consumer.known if each.topic_id != TOPIC_ID
    ]
    stage.claims.claim(stage.copies, 7)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 1


# --- the store fails


async def claims_again_in_ms(stage: RetryStage, offset: int = 7) -> int:
    entry = stage.copies.ledger.entry(offset)
    assert entry is not None
    assert stage.copies.ledger.ready == 0
    return entry.due_ms - stage.world.clock.monotonic_ms()


async def test_i7_without_an_answer_no_copy_is_delivered_and_it_claims_again(
    stage: RetryStage,
) -> None:
    retry_copy = await stage.moves_and_ends()
    stage.world.store.away = True
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    assert CLAIM_AGAIN_MS - 50 <= await claims_again_in_ms(stage) <= CLAIM_AGAIN_MS
    stage.world.store.away = False
    stage.claims.claim(stage.copies, 7)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 1


async def test_r12_a_claim_whose_answer_was_lost_is_repeated_and_wins(stage: RetryStage) -> None:
    retry_copy = await stage.moves_and_ends()
    stage.arrives(7, retry_copy)
    stage.origin_record(0).claimed_by = CopyRef(0, 7)
    await asyncio.sleep(0.01)
    assert stage.copies.ledger.ready == 1


async def test_a_claim_without_its_texts_is_asked_again(
    stage: RetryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivered now, the copy would have lost the reasons of its failures."""
    retry_copy = await stage.moves()
    await stage.settles(Verb.RETRY, retry_copy, for_ms=1, error="no disk")

    async def away(key: LedgerKey, offsets: object) -> list[MessageTexts | None]:
        raise StoreError(f"{key}, {offsets}")

    monkeypatch.setattr(stage.world.store, "texts", away)
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    assert 0 < await claims_again_in_ms(stage) <= CLAIM_AGAIN_MS
    assert stage.asked(PlaceCopy) == []


async def test_a_close_that_failed_is_sent_again_while_the_partition_is_owned(
    stage: RetryStage,
) -> None:
    for offset in range(2):
        stage.arrives(offset, await stage.moves_and_ends(offset))
    await asyncio.sleep(0.01)
    for offset in range(2):
        stage.origin_record(offset).closed_ms = 0
    stage.world.store.away = True
    stage.claims.close(stage.copies, 0)
    await asyncio.sleep(0.01)
    stage.world.store.away = False
    assert stage.origin_record(0).closed_ms == 0
    await asyncio.sleep(CLAIM_AGAIN_MS / 1000 + 0.01)
    assert stage.origin_record(0).closed_ms
    stage.world.store.away = True
    stage.claims.close(stage.copies, 1)
    await asyncio.sleep(0.01)
    stage.world.store.away = False
    stage.copies.closed = True
    await asyncio.sleep(2 * CLAIM_AGAIN_MS / 1000)
    assert stage.origin_record(1).closed_ms == 0


# --- repair and takeover


async def test_r10_a_confirmed_claim_is_kept_for_replay(
    stage: RetryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(stage.world.context.replay_log, "confirmed", lambda *of: kept.extend(of[2]))
    one, two = await stage.moves_and_ends(0), await stage.moves(1)
    for at, retry_copy in enumerate((one, two)):
        stage.arrives(at, retry_copy)
    await asyncio.sleep(0.01)
    claimed = [each for each in kept if isinstance(each, RestoreClaimed)]
    assert claimed == [RestoreClaimed(0, one.generation, 1, 1, CopyRef(0, 0))]


async def test_r10_an_ack_of_which_a_claim_has_learned_is_kept_for_replay(
    stage: RetryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who served it may be dead, and the copy does not come again: a rollback that forgets the ack
    would leave the message in its key queue for ever.
    """
    kept: list[object] = []
    monkeypatch.setattr(stage.world.context.replay_log, "confirmed", lambda *of: kept.extend(of[2]))
    one, two = await stage.moves(0), await stage.moves_and_ends(1)
    await stage.settles(Verb.ACK, one)
    for at, retry_copy in enumerate((one, two)):
        stage.arrives(at, retry_copy)
    await asyncio.sleep(0.01)
    acked = [each for each in kept if isinstance(each, ReplayAck)]
    mark = epoch_mark(stage.origin.epoch)
    assert acked == [ReplayAck(0, one.generation, mark=mark)]


async def test_a_copy_of_a_partition_that_was_given_up_is_left_alone(stage: RetryStage) -> None:
    retry_copy = await stage.moves()
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    other = await stage.owns_copies(1)
    stage.arrives(3, await stage.moves(1), into=other)
    await asyncio.sleep(0.01)
    stage.copies.closed = True
    stage.claims.forget(stage.copies)
    assert list(stage.claims.held[PLACE]) == [1]
    stage.claims.forget(stage.origin)
    asked = len(stage.asked(ClaimOrigin))
    stage.claims.claim(stage.copies, 7)
    await asyncio.sleep(0.01)
    assert len(stage.asked(ClaimOrigin)) == asked


async def test_a_partition_given_up_while_its_claim_was_under_way_is_told_nothing(
    stage: RetryStage,
) -> None:
    stage.arrives(7, await stage.moves_and_ends())
    stage.copies.closed = True
    before = len(stage.world.store.asked)
    await asyncio.sleep(0.01)
    assert len(stage.world.store.asked) == before


async def test_a_new_owner_closes_what_the_one_before_left_open(stage: RetryStage) -> None:
    """Only the headers say then which origin record it is."""
    stage.arrives(7, await stage.moves_and_ends())
    await asyncio.sleep(0.01)
    stage.origin_record(0).closed_ms = 0
    stage.claims.close(stage.copies, 7)
    await asyncio.sleep(0.01)
    assert stage.origin_record(0).closed_ms


# --- redriven


async def test_r29_a_redriven_copy_claims_in_the_record_of_its_dead_letter(
    stage: RetryStage,
) -> None:
    retry_copy = replace(await stage.moves_and_ends(), redriven=dead_letter(5))
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    (call,) = stage.calls(ClaimOrigin)
    assert call.key == dead_key("cluster", NAME, dead_letter(5).topic_id, 0)
    assert call.ops[0].offset == 5
    assert stage.origin_record(0).claimed_by is None


async def test_r29_a_record_of_dead_letters_that_refuses_is_opened_here(stage: RetryStage) -> None:
    """Nobody owns it, so nobody else would."""
    retry_copy = replace(await stage.moves_and_ends(), redriven=dead_letter(5))
    key = stage.claims.handle(retry_copy).key
    record = stage.record(stage.origin)
    stage.world.data.records[key] = record
    record.run = "another"
    stage.arrives(7, retry_copy)
    await asyncio.sleep(0.01)
    assert stage.dead_records == [key]
    assert 0 < await claims_again_in_ms(stage) <= CLAIM_AGAIN_MS


# --- bounds


async def test_i8_one_call_holds_at_most_a_batch(
    stage: RetryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_module, "BATCH_MAX", 2)
    found = [await stage.moves_and_ends(offset) for offset in range(5)]
    for at, retry_copy in enumerate(found):
        stage.arrives(at, retry_copy)
    await asyncio.sleep(0.01)
    assert [len(call.ops) for call in stage.calls(ClaimOrigin)] == [2, 2, 1]
    assert max(len(call.ops) for call in stage.calls(CloseOrigin)) == 2
    assert stage.copies.ledger.ready == 5


async def test_i8_copies_that_wait_are_remembered_within_a_bound(
    stage: RetryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest is forgotten first. It claims by its timer."""
    monkeypatch.setattr(claims_module, "HELD_MAX", 2)
    for offset in range(4):
        stage.arrives(offset, await stage.moves(offset))
        await asyncio.sleep(0.01)
    assert list(stage.claims.held[PLACE]) == [2, 3]


async def test_i8_handles_of_forged_records_are_bounded(
    stage: RetryStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_module, "HANDLES_MAX", 2)
    retry_copy = await stage.moves_and_ends()
    first = stage.claims.handle(retry_copy)
    assert stage.claims.handle(retry_copy) is first
    for number in range(1, 4):
        origin = replace(retry_copy.origin, partition=number)
        stage.claims.handle(replace(retry_copy, origin=origin))
    assert stage.claims.handle(retry_copy) is not first


async def test_i8_what_is_to_be_closed_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner closes what does not fit."""
    monkeypatch.setattr(claims_module, "CLOSING_MAX", 2)
    stage = RetryStage(world)
    await stage.begin()
    for offset in range(4):
        stage.arrives(offset, await stage.moves_and_ends(offset))
    stage.start(stage.claims)
    await asyncio.sleep(0.01)
    await stage.tasks.stop()
    closed = [offset for offset in range(4) if stage.origin_record(offset).closed_ms]
    assert closed == [2, 3]
    assert stage.copies.ledger.ready == 4
