"""What a partition writes into its record: upkeep, and a repair when it was read again; and when it
must be read again (R7, R10, R14, R16).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

import pytest

from ackd.core.ledger.entry import STATUS_OF, EntryStatus
from ackd.core.ledger.repair import Repair
from ackd.core.ledger.sent_back import MovedMessages
from ackd.core.record.decide import REPAIR_WAIT_MS
from ackd.core.record.delivery_events import events
from ackd.core.record.operations import (
    Advance,
    Gap,
    Op,
    RemakeChunk,
    ReplayFinished,
    Reset,
    RestoreMoved,
    Settle,
)
from ackd.core.record.protocol import Open, RecordCall, RecordReply
from ackd.core.record.transitions import Outcome, State, Verb
from ackd.engine.partition.long_leases import AFTER_MS
from ackd.engine.partition.partition import REPAIR_BATCH, Partition
from ackd.errors import StoreError
from tests.unit.engine.partition.test_partition_reload import reread
from tests.unit.engine.world import LEASE_MS, World

NO_REPAIR = Repair([], 0, [], [])


def settle(partition: Partition, verb: Verb, offset: int, for_ms: int = 0) -> Settle:
    """Of the lease that the message has now."""
    entry = partition.ledger.entry(offset)
    assert entry is not None
    return Settle(verb, offset, entry.fence, entry.rollback_epoch, entry.attempt, for_ms)


def status(partition: Partition, offset: int) -> EntryStatus | None:
    """None: the message is finished."""
    entry = partition.ledger.entry(offset)
    return None if entry is None else entry.status


@contextmanager
def erased(world: World, partition: Partition) -> Iterator[None]:
    """At the end the record is as it was before: the store went back in time."""
    before = deepcopy(world.data.records[partition.key])
    yield
    world.data.records[partition.key] = before


def asked(world: World) -> list[list[Op]]:
    """The operations of each call since the last time."""
    calls, world.store.asked = world.store.asked, []
    return [list(call.ops) for call in calls]


# --- upkeep


async def test_upkeep_is_returned_once_while_its_call_may_succeed(world: World) -> None:
    partition = await world.owns(0, [0, 5, 6])
    assert partition.upkeep() == [Gap(1, 5)]
    assert partition.upkeep() == []
    await world.leases(partition, 2)
    partition.ledger.acked([0])
    assert partition.upkeep() == [Advance(5)]
    assert partition.upkeep() == []
    partition.ledger.acked([5])
    assert partition.upkeep() == [Advance(6)]


async def test_a_gap_below_the_watermark_is_not_sent(world: World) -> None:
    """The watermark says as much."""
    partition = await world.owns(0, [5, 9])
    assert partition.upkeep() == [Gap(6, 9), Advance(5)]


async def test_a_call_brings_the_watermark_even_if_another_one_does(world: World) -> None:
    """That one may fail."""
    partition = await world.owns(0, range(2))
    await world.leases(partition)
    partition.ledger.acked([0])
    assert partition.upkeep() == [Advance(1)]
    asked(world)
    await partition.flush(ReplayFinished(1))
    assert asked(world) == [[Advance(1), ReplayFinished(1)]]


async def test_there_is_upkeep_until_the_store_has_confirmed_it(world: World) -> None:
    partition = await world.owns(0, [0, 5])
    seen = [partition.has_upkeep]  # the gap
    await partition.flush()
    seen.append(partition.has_upkeep)
    await world.leases(partition)
    partition.ledger.acked([0])
    assert partition.upkeep() == [Advance(5)]
    seen.append(partition.has_upkeep)  # under way
    await partition.flush()
    seen.append(partition.has_upkeep)
    assert seen == [True, False, True, False]
    assert partition.ledger.confirmed == 5
    asked(world)
    await partition.flush()
    assert asked(world) == [[]]


async def test_whoever_told_something_hears_the_answer(world: World) -> None:
    """With the place of its own results in the call's."""
    partition = await world.owns(0, [0, 5])
    heard: list[tuple[RecordReply | StoreError, int]] = []
    partition.tell(ReplayFinished(0), on_answer=lambda *answer: heard.append(answer))
    await world.flusher.idle()
    ((reply, start),) = heard
    assert isinstance(reply, RecordReply)
    assert start == 0
    assert len(reply.results) == 2
    world.store.away = True
    partition.tell(on_answer=lambda *answer: heard.append(answer))
    await world.flusher.idle()
    assert isinstance(heard[1][0], StoreError)


async def test_r26_who_holds_a_lease_is_written_once_it_is_a_second_old(world: World) -> None:
    """Though upkeep comes before it in the call."""
    partition = await world.owns(0, [0, 5])
    await world.leases(partition, holder="worker-1")
    await world.leases(partition, holder="worker-2")
    world.clock.pass_ms(AFTER_MS - 1)
    asked(world)
    partition.note_long_leases(1 << 20)
    await world.flusher.idle()
    assert asked(world) == []
    world.clock.pass_ms(1)
    partition.note_long_leases(1 << 20)
    await world.flusher.idle()
    ((gap, *looks),) = asked(world)
    assert (gap, len(looks)) == (Gap(1, 5), 2)
    told = [each.history for each in await world.store.texts(partition.key, [0, 5]) if each]
    assert [next(events(each)).holder for each in told] == [b"worker-1", b"worker-2"]
    assert (partition.has_texts, partition.has_notes) == (True, False)


async def test_who_holds_a_short_lease_is_written_when_half_of_it_is_over(world: World) -> None:
    """It would end unwritten, and its delivery be in no history."""
    partition = await world.owns(0, [0])
    await world.leases(partition, holder="worker-1", lease_ms=AFTER_MS // 2)
    world.clock.pass_ms(AFTER_MS // 4)
    partition.note_long_leases(1 << 20)
    await world.flusher.idle()
    (texts,) = await world.store.texts(partition.key, [0])
    assert texts is not None
    assert next(events(texts.history)).holder == b"worker-1"


# --- what shows that the record must be read again


async def test_r10_a_record_whose_version_went_back_is_read_again(world: World) -> None:
    partition = await world.owns(0, range(2))
    with erased(world, partition):
        await world.leases(partition)
    await partition.flush()
    assert world.events.seen.count("reload") == 1
    assert not partition.grantable


async def test_r10_a_record_that_was_read_again_counts_from_where_it_is(world: World) -> None:
    """Its version is lower than before, which shows nothing new."""
    partition = await world.owns(0, range(5))
    with erased(world, partition):
        for _ in range(5):
            await world.leases(partition)
    await partition.flush()
    await reread(world, partition)
    await partition.flush()
    assert world.events.seen.count("reload") == 1
    with erased(world, partition):
        await reread(world, partition)
    await partition.flush()
    assert world.events.seen.count("reload") == 2


async def test_a_call_that_changes_nothing_is_no_sign_of_a_rollback(world: World) -> None:
    partition = await world.owns()
    await partition.flush()
    await partition.flush()
    assert "reload" not in world.events.seen


async def test_the_reset_epoch_is_that_of_the_record(world: World) -> None:
    partition = await world.owns()
    await partition.flush(Reset(0))
    await reread(world, partition)
    assert partition.epoch == world.data.records[partition.key].epoch == 1


async def test_r16_a_journal_that_was_cut_is_made_up_for_by_a_reread(world: World) -> None:
    partition = await world.owns(0, range(2))
    await world.leases(partition)
    await world.flusher.submit(world.handle(), [settle(partition, Verb.ACK, 0)])
    world.data.records[partition.key].journal.clear()
    await partition.flush()
    assert world.events.seen.count("reload") == 1
    assert not partition.grantable
    await reread(world, partition)
    assert partition.ledger.watermark == 1


async def test_r16_what_others_settled_comes_with_a_reply(world: World) -> None:
    partition = await world.owns(0, range(2))
    await world.leases(partition)
    await world.flusher.submit(world.handle(), [settle(partition, Verb.ACK, 0)])
    assert partition.ledger.watermark == 0
    await partition.flush()
    await partition.flush()
    assert partition.ledger.watermark == 1
    assert "reload" not in world.events.seen


@pytest.mark.parametrize("may_mend", [True, False], ids=["may mend", "a reread found it"])
async def test_a_mistake_of_the_ledger_is_reported_and_leads_to_a_reread(
    world: World, caplog: pytest.LogCaptureFixture, *, may_mend: bool
) -> None:
    """But for one that the reread itself has found: it would find it for ever."""
    partition = await world.owns()
    partition.ledger._entries.mistaken("two and two are five", may_mend=may_mend)
    with caplog.at_level(logging.ERROR, "ackd.engine"):
        partition.perform()
    assert "two and two are five" in caplog.text
    assert ("reload" in world.events.seen) is may_mend
    assert partition.needs_reread is may_mend


async def test_a_reread_is_asked_for_once(world: World) -> None:
    partition = await world.owns()
    partition.reload()
    partition.reload()
    assert world.events.seen == ["reload"]
    await reread(world, partition)
    partition.reload()
    assert world.events.seen == ["reload", "reload"]


# --- a message that vanished


async def vanishing(world: World) -> Partition:
    """A partition of which an earlier owner leased 1, which the log has lost; the lease is over."""
    await world.leases(await world.owns(0, range(3)), 2)
    partition = await world.owns(0, [0, 2])
    world.clock.pass_ms(LEASE_MS)
    partition.ledger.tick(world.clock.monotonic_ms())
    partition.perform()
    assert world.count("ackd_vanished_total", subscription="work") == 1
    return partition


async def test_r7_a_vanished_message_is_finished_once_nobody_holds_it(world: World) -> None:
    partition = await vanishing(world)
    assert not partition.ledger.over(1)
    await partition.flush()
    assert partition.ledger.over(1)
    assert "reload" not in world.events.seen


async def test_r7_a_vanished_message_whose_lease_was_revived_is_not_finished(world: World) -> None:
    """Its worker extended it late, at another sidecar."""
    partition = await vanishing(world)
    extend = settle(partition, Verb.EXTEND, 1, LEASE_MS)
    await world.flusher.submit(world.handle(), [extend])
    await partition.flush()
    assert not partition.ledger.over(1)
    assert world.events.seen.count("reload") == 1
    await reread(world, partition)
    assert status(partition, 1) is EntryStatus.LEASED


async def test_a_plain_gap_finishes_no_message_that_somebody_holds(world: World) -> None:
    partition = await world.owns(0, range(1))
    await world.leases(partition)
    await partition.flush(Gap(0, 1))
    assert status(partition, 0) is EntryStatus.LEASED
    assert "reload" not in world.events.seen


# --- after a possible rollback


async def test_r10_after_a_change_of_the_server_run_nothing_is_granted_until_all_replayed(
    world: World,
) -> None:
    partition = await world.owns(0, range(1))
    world.data.records[partition.key].run = "another"
    await reread(world, partition)
    assert partition.repairing
    assert partition.repair_until_ms == world.clock.monotonic_ms() + REPAIR_WAIT_MS
    assert not partition.grantable
    partition.repaired()
    assert partition.grantable


async def test_a_reread_without_a_change_of_the_server_run_waits_for_nobody(world: World) -> None:
    partition = await world.owns(0, range(1))
    await reread(world, partition)
    assert not partition.repairing
    assert partition.grantable


async def test_r10_what_the_store_forgot_is_written_back(world: World) -> None:
    """An ack, and a lease until its deadline: its holder goes on as if nothing had been."""
    partition = await world.owns(0, range(4))
    with erased(world, partition):
        await world.leases(partition, 3)
        await world.flusher.submit(partition.handle, [settle(partition, Verb.ACK, 1)])
    world.clock.pass_ms(1_000)
    await partition.flush()
    await reread(world, partition)
    record = world.data.records[partition.key]
    assert 1 in record.finished
    assert record.slots[2].state is State.LEASED
    assert record.slots[2].when_ms == world.clock.wall_ms() + LEASE_MS - 1_000
    ack = settle(partition, Verb.ACK, 2)
    reply = await world.flusher.submit(world.handle(), [ack])
    assert reply.results[0].outcome is Outcome.ACKED


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        (Verb.EXTEND, State.LEASED),
        (Verb.RETRY, State.WAITING),
        (Verb.RELEASE, State.RELEASED),
        (Verb.DEAD, State.DEAD),
    ],
)
async def test_r10_what_others_settled_is_no_loss(world: World, verb: Verb, state: State) -> None:
    """Another sidecar ended a lease sooner, and the owner has not read that yet."""
    partition = await world.owns(0, range(3))
    await world.leases(partition, 2)
    sooner = settle(partition, verb, 0, 40)
    reply = await world.flusher.submit(world.handle(), [sooner])
    assert reply.results[0].outcome is not Outcome.LOST
    record = world.data.records[partition.key]
    record.run = "another"
    there = deepcopy(record.slots)
    assert there[0].state is state
    await reread(world, partition)
    assert record.slots == there
    entry = partition.ledger.entry(0)
    assert entry is not None
    assert entry.status is STATUS_OF.get(state, EntryStatus.READY)
    if state is State.LEASED:
        assert entry.due_ms == world.clock.monotonic_ms() + 40


async def test_r10_an_extension_that_the_store_lost_is_kept_whatever_others_settled_before(
    world: World,
) -> None:
    """The journal entry of a shorter one is as old as the record that came back."""
    partition = await world.owns(0, range(3))
    await world.leases(partition, 2)
    await world.flusher.submit(world.handle(), [settle(partition, Verb.EXTEND, 0, 40)])
    await partition.flush()
    with erased(world, partition):
        long = settle(partition, Verb.EXTEND, 0, 10 * LEASE_MS)
        await world.flusher.submit(partition.handle, [long])
    await world.flusher.submit(world.handle(), [settle(partition, Verb.ACK, 1)])
    world.data.records[partition.key].run = "another"
    await reread(world, partition)
    entry = partition.ledger.entry(0)
    assert entry is not None
    assert entry.due_ms == world.clock.monotonic_ms() + 10 * LEASE_MS
    slot = world.data.records[partition.key].slots[0]
    assert slot.when_ms == world.clock.wall_ms() + 10 * LEASE_MS


async def test_r14_a_lost_chunk_is_made_again_with_what_is_known_of_it(world: World) -> None:
    partition = await world.owns(0, range(4))
    await world.leases(partition, 4)
    await world.flusher.submit(partition.handle, [settle(partition, Verb.ACK, 2)])
    record = world.data.records[partition.key]
    record.finished.chunks.clear()
    request = Open(partition.key, "", 1, 1, 0, None, partition.handle.term)
    snapshot = await world.flusher.open(request, partition.handle)
    assert snapshot.lost_chunks == [0]
    world.store.asked.clear()
    await partition.repair(partition.opened(snapshot), snapshot.lost_chunks)
    (call,) = world.store.asked
    assert list(call.ops) == [RemakeChunk(0), ReplayFinished(2)]
    assert 2 in record.finished


async def test_r10_a_repair_is_in_an_order_in_which_nothing_hides_another(world: World) -> None:
    """Chunks first, as other operations need them; origin records before the watermark that would
    hide their messages; leases last.
    """
    partition = await world.owns(0, range(1))
    now_ms = world.clock.monotonic_ms()
    moved = MovedMessages(7, 1, 1, 0, now_ms, stored=True)
    leases = [(5, 8, 1, 1, now_ms + 40), (6, 8, 1, 1, now_ms - 40)]
    await partition.repair(Repair([3], 2, [(4, 9, 1, 2)], leases, [(1, moved)]), [0])
    (call,) = world.store.asked
    expected: list[Op] = [
        RemakeChunk(0),
        RestoreMoved(1, 7, 1, 1, stored=True),
        ReplayFinished(3),
        Advance(2, repair=True),
        Settle(Verb.EXTEND, 5, 8, 1, 1, 40, counted=False),
        Settle(Verb.EXTEND, 6, 8, 1, 1, 1, counted=False),
        Settle(Verb.RELEASE, 4, 9, 1, 2),
    ]
    assert list(call.ops) == expected


async def test_the_watermark_of_a_repair_is_not_held_back(world: World) -> None:
    """What it needs goes before it in the same call."""
    partition = await world.owns()
    partition.tell(Advance(2, repair=True), Advance(3))
    partition.reload()
    await world.flusher.idle()
    assert asked(world) == [[Advance(2, repair=True), Advance(0)]]


async def test_a_large_repair_is_written_in_parts(world: World) -> None:
    partition = await world.owns()
    finished = list(range(2 * REPAIR_BATCH + 1))
    await partition.repair(NO_REPAIR._replace(finished=finished))
    calls = world.store.asked
    assert [len(call.ops) for call in calls] == [REPAIR_BATCH, REPAIR_BATCH, 1]
    assert [op.offset for call in calls for op in call.ops] == finished


async def test_nothing_is_written_if_nothing_lacks(world: World) -> None:
    partition = await world.owns()
    await partition.repair(NO_REPAIR)
    assert world.store.asked == []


# --- while a repair is being written


async def test_r10_nothing_is_granted_while_a_repair_is_being_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await world.owns(0, range(2))
    decide, seen = world.store.apply, list[tuple[bool, bool]]()

    async def looks(calls: Sequence[RecordCall]) -> list[RecordReply]:
        seen.append((partition.needs_reread, partition.grantable))
        return await decide(calls)

    monkeypatch.setattr(world.store, "apply", looks)
    await partition.repair(NO_REPAIR._replace(finished=[1]))
    assert seen == [(True, False)]
    assert (partition.needs_reread, partition.grantable) == (False, True)


async def test_r10_repairs_within_another_end_with_the_outer_one(world: World) -> None:
    """The broker is asked for the commit after the first part was written."""
    partition = await world.owns(0, range(2))
    await world.leases(partition)
    partition.ledger.acked([0])
    with partition.mends():
        await partition.repair(NO_REPAIR._replace(finished=[1]))
        assert (partition.grantable, partition.upkeep()) == (False, [])
    assert (partition.grantable, partition.upkeep()) == (True, [Advance(1)])


async def test_a_repair_that_the_store_refused_is_an_error(world: World) -> None:
    partition = await world.owns()
    world.data.records[partition.key].run = "another"
    with pytest.raises(StoreError, match="refused the repair: MOVED"):
        await partition.repair(NO_REPAIR._replace(finished=[1]))
    assert partition.needs_reread


async def test_a_repair_without_an_answer_is_an_error_and_ends(world: World) -> None:
    partition = await world.owns()
    world.store.away = True
    with pytest.raises(StoreError):
        await partition.repair(NO_REPAIR._replace(finished=[1]))
    assert not partition.needs_reread  # whoever reads the record again must say so


# --- closed


async def test_a_closed_partition_repairs_nothing(world: World) -> None:
    """It does not learn who got which message, so it must not release."""
    partition = await world.owns(0, range(1))
    partition.close()
    await partition.repair(Repair([0], 0, [(0, 1, 1, 1)], []))
    assert world.store.asked == []
    assert not partition.grantable


async def test_a_closed_partition_learns_of_no_reply(world: World) -> None:
    partition = await world.owns(0, range(1))
    await world.leases(partition)
    version, ack = partition.version, settle(partition, Verb.ACK, 0)
    answer = world.flusher.submit(partition.handle, [ack])
    partition.close()
    assert (await answer).results[0].outcome is Outcome.ACKED
    assert status(partition, 0) is EntryStatus.LEASED
    assert partition.version == version


async def test_a_closed_partition_hears_of_no_refusal(world: World) -> None:
    partition = await world.owns(0, range(1))
    other = Open(partition.key, "pod-2/1", rollback_epoch=9, incarnation=9, grace_ms=0)
    await world.store.open(other)
    partition.close()
    partition.tell()
    await world.flusher.idle()
    assert "lost" not in world.events.seen


async def test_a_closed_partition_hears_of_no_failure(world: World) -> None:
    partition = await world.owns(0, [0, 5])
    partition.close()
    world.store.lost = True
    partition.tell()
    await world.flusher.idle()
    assert "reload" not in world.events.seen
    assert partition.upkeep() == []
