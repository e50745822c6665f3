"""An owned partition: fetching, grants, deliveries, replies, and effects.

Upkeep is in `test_partition_repair.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.core.ids import TopicPartition
from ackd.core.ledger.effects import Claim, CloseOriginRecord, SendBack, SendDead
from ackd.core.ledger.entry import UNKNOWN_ROLLBACK_EPOCH, EntryStatus
from ackd.core.ledger.grants import grants
from ackd.core.ledger.order import key_hash
from ackd.core.ledger.send_back import Rules, Stuck, Why
from ackd.core.ledger.unordered import UnorderedLedger
from ackd.core.origin import Origin
from ackd.core.record.operations import (
    AskBlocker,
    Gap,
    MarkDead,
    MoveToRetry,
    ReplayFinished,
)
from ackd.core.record.protocol import CallTexts, ItemTexts, Open, OpResult, RecordCall, RecordReply
from ackd.core.record.transitions import Outcome, Verb
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.partition.ordering import position_of
from ackd.engine.partition.partition import Partition, Policy
from ackd.ports import Record
from tests.unit.engine.partition.test_partition_failed_calls import time_passes
from tests.unit.engine.partition.test_partition_reload import reread
from tests.unit.engine.partition.test_partition_repair import asked, settle, status
from tests.unit.engine.world import LEASE_MS, NAME, PLAIN, TOPIC, TOPIC_ID, World

COPIES = Policy(None, 0, retry_copies=True)
RETRY_TOPIC = "ackd.retry.work"
RETRY_ID = bytes(range(16, 32))
IN_ORDER = PLAIN._replace(position_of=position_of("key", NAME, retry_copies=False))
KEY = key_hash(b"k")


# --- fetching


async def test_a_fetch_begins_at_the_first_unfinished_message(world: World) -> None:
    before = await world.owns()
    await before.flush(Gap(0, 3), Gap(5, 6))
    partition = await world.owns()
    assert world.consumer.fetched_from[-1] == (partition.tp, 3)
    world.fetches(partition, range(3, 7))
    assert list(partition.ledger.entries) == [3, 4, 6]


async def test_a_long_finished_range_is_not_fetched(world: World) -> None:
    """What the fetch before brings after that is ignored."""
    before = await world.owns()
    await before.flush(Gap(1, 5_000))
    partition = await world.owns()
    intake, session = partition.ledger.intake, partition.ledger.intake.session
    world.fetches(partition, range(1))
    assert world.consumer.fetched_from[-1] == (partition.tp, 5_000)
    assert intake.session == len(world.consumer.fetched_from)
    assert intake.fetched(session, [Record(5_000, None, b"v", (), 1)]) == 0
    assert intake.fetched(intake.session, [Record(5_000, None, b"v", (), 1)]) == 1


async def test_r19_finished_copies_that_only_a_commit_reported_are_fetched_again(
    world: World,
) -> None:
    """Somebody has to take them out of their key queues."""
    partition = await copies_of(world)
    await partition.flush(Gap(0, 3))
    partition = await copies_of(world)
    assert partition.ledger.claims is not None
    partition.ledger.claims.read_over(1, 3)
    partition.start_fetching()
    assert world.consumer.fetched_from[-1] == (partition.tp, 1)


async def test_what_follows_from_the_record_is_done_when_fetching_starts(world: World) -> None:
    partition = await world.owns(0, range(1))
    await world.leases(partition)
    request = Open(partition.key, "", 1, 1, 0, None, partition.handle.term)
    partition.opened(await world.flusher.open(request, partition.handle))
    world.events.seen.clear()
    partition.start_fetching()
    assert world.events.seen == ["due"]  # the lease that the record has


# --- whether messages may be granted


async def test_a_store_that_confirms_nothing_grants_nothing(world: World) -> None:
    sure = await world.owns(0, range(1))
    unsure = await world.owns(1, range(1), wiring=world.events.wiring(confirmed=False))
    assert (sure.grantable, unsure.grantable) == (True, False)


async def test_r9_each_receive_has_a_fence_of_its_own(world: World) -> None:
    """Two receives may come to the store in one call."""
    partition = await world.owns(0, range(3))
    offsets = partition.ledger.grants.take(3, 1 << 62)
    asked(world)
    partition.tell(*grants(offsets[:2], LEASE_MS, partition.next_grant()))
    partition.tell(*grants(offsets[2:], LEASE_MS, partition.next_grant()))
    await world.flusher.idle()
    assert len(asked(world)) == 1
    first, second, third = (partition.ledger.entries[offset].fence for offset in range(3))
    assert first == second < third


async def test_the_numbers_of_receives_stay_within_fifteen_bits(world: World) -> None:
    """The store keeps one as a number of this size; they repeat only after all were used."""
    partition = await world.owns()
    numbers = [partition.next_grant() for _ in range(1 << 15)]
    assert set(numbers) == set(range(1 << 15))


# --- deliveries


async def test_a_delivery_says_what_the_store_granted(world: World) -> None:
    partition = await world.owns(3, range(1))
    (delivery,) = await world.leases(partition, holder="worker-3")
    now_ms, entry = world.clock.wall_ms(), partition.ledger.entry(0)
    assert entry is not None
    assert (delivery.topic, delivery.partition, delivery.record.offset) == (TOPIC, 3, 0)
    assert (delivery.attempt, delivery.attempts_max) == (1, 17)
    assert (delivery.first_seen_ms, delivery.deadline_ms) == (now_ms, now_ms + LEASE_MS)
    assert delivery.origin is None
    assert entry.holder == "worker-3"
    token = world.context.keys.open(delivery.lease)
    assert (token.topic_id, token.partition, token.offset) == (TOPIC_ID, 3, 0)
    assert (token.fence, token.rollback_epoch, token.attempt) == (entry.fence, 1, 1)


async def test_messages_that_the_store_did_not_grant_are_not_delivered(world: World) -> None:
    """Another sidecar repeated an ack of one."""
    partition = await world.owns(0, range(3))
    await world.flusher.submit(world.handle(), [ReplayFinished(1)])
    deliveries = await world.leases(partition, 3)
    assert [each.record.offset for each in deliveries] == [0, 2]
    assert partition.ledger.over(1)
    world.fetches(partition, [3])
    world.data.records[partition.key].repair_until_ms = world.clock.wall_ms() + 1
    assert await world.leases(partition) == []
    assert status(partition, 3) is EntryStatus.WAITING


async def test_messages_that_left_since_their_grant_are_not_delivered(world: World) -> None:
    """One is finished, and one has lost its body. Their results lie behind those of upkeep."""
    partition = await world.owns(0, [0, 1, 2, 5])
    entries = partition.ledger._entries
    offsets = partition.ledger.grants.take(4, 1 << 62)
    ops = [*partition.upkeep(), *grants(offsets, LEASE_MS, partition.next_grant())]
    reply = await world.flusher.submit(partition.handle, ops)
    partition.ledger.acked([1])
    entries.lose_body(2, entries.by_offset[2])
    made = partition.deliveries(offsets, reply, 1, 17, "me")
    assert [each.record.offset for each in made] == [0, 5]


async def test_r27_leases_are_signed_with_the_key_that_was_taken_over(world: World) -> None:
    partition = await world.owns(0, range(2))
    (old,) = await world.leases(partition)
    keys = world.context.keys
    keys.adopt(2, b"n" * 16)
    partition.sign()
    (new,) = await world.leases(partition)
    keys.adopt(3, b"m" * 16)  # the first one is forgotten, the second still verifies
    assert keys.open(new.lease).offset == 1
    with pytest.raises(ValueError):
        keys.open(old.lease)


ORIGIN = Origin("cluster", TOPIC_ID, TOPIC, 3, 40)
COPY = RetryCopy(ORIGIN, NAME, 9, 7, 5, 4, 0, 600, 800, "age")


async def copies_of(world: World) -> Partition:
    return await world.owns(0, range(1), policy=COPIES, topic=(RETRY_TOPIC, RETRY_ID))


def stored(copy: RetryCopy) -> Record:
    """As it lies in the retry topic."""
    return Record(0, b"k", b"v", retry_copy_headers(copy, (("own", b"1"),)), 1_000)


async def test_a_copy_is_delivered_under_the_name_of_its_message(world: World) -> None:
    """With the time of its first delivery there."""
    partition = await copies_of(world)
    made = partition.message("token", stored(COPY), 4, 17, 2_000, 9_000)
    assert (made.id, made.origin) == (f"{TOPIC}/3/40", ORIGIN)
    assert (made.record.value, made.record.headers) == (b"v", (("own", b"1"),))
    assert (made.attempt, made.attempts_max) == (4, 17)
    assert (made.first_seen_ms, made.deadline_ms) == (600, 9_000)
    never = partition.message("token", stored(replace(COPY, first_ms=0)), 4, 17, 2_000, 9_000)
    assert never.first_seen_ms == 2_000


async def test_r1_a_copy_from_a_topic_that_was_made_again_goes_under_its_own_name(
    world: World,
) -> None:
    partition = await copies_of(world)
    partition.copies.find_topics(lambda _: bytes(16))
    made = partition.message("token", stored(COPY), 4, 17, 2_000, 9_000)
    assert (made.id, made.origin) == (f"{RETRY_TOPIC}/0/0", ORIGIN)
    assert made.record.headers == (("own", b"1"),)


async def test_what_is_no_copy_is_delivered_as_it_is(world: World) -> None:
    partition = await copies_of(world)
    body = Record(0, b"k", b"v", (("own", b"1"),), 1_000)
    made = partition.message("token", body, 1, 17, 2_000, 9_000)
    assert (made.id, made.record, made.origin) == (f"{RETRY_TOPIC}/0/0", body, None)
    assert (made.attempt, made.first_seen_ms, made.deadline_ms) == (1, 2_000, 9_000)


async def test_copies_among_the_granted_are_shown_as_their_messages(world: World) -> None:
    partition = await world.owns(policy=COPIES, topic=(RETRY_TOPIC, RETRY_ID))
    intake = partition.ledger.intake
    intake.fetched(intake.session, [stored(COPY)])
    await partition.flush(partition.copies.place(0, 9, 4, 0, 0))
    (delivery,) = await world.leases(partition)
    assert (delivery.id, delivery.attempt) == (f"{TOPIC}/3/40", 5)


# --- what the store decided


async def test_each_observer_gets_what_the_store_decided_in_order(world: World) -> None:
    """Nothing of a call that it refused."""
    told: list[tuple[RecordCall, Outcome, bool]] = []

    def note(partition: Partition, call: RecordCall, reply: RecordReply) -> None:
        told.append((call, reply.results[0].outcome, partition.ledger.over(0)))

    wiring = replace(world.events.wiring(), observers=(note, Partition.apply, note))
    partition = await world.owns(0, range(1), wiring=wiring)
    await world.leases(partition)
    told.clear()
    await world.flusher.submit(partition.handle, [settle(partition, Verb.ACK, 0)])
    call = world.store.asked[-1]
    assert told == [(call, Outcome.ACKED, False), (call, Outcome.ACKED, True)]
    world.data.records[partition.key].run = "another"
    await partition.flush()
    assert len(told) == 2


async def test_settles_change_the_ledger(world: World) -> None:
    partition = await world.owns(0, range(5))
    await world.leases(partition, 5)
    ops = [settle(partition, Verb.ACK, 0), settle(partition, Verb.ACK, 1)]
    ops += [settle(partition, Verb.RETRY, 2, 5_000), settle(partition, Verb.RELEASE, 3)]
    await world.flusher.submit(partition.handle, ops)
    now = [status(partition, offset) for offset in range(5)]
    waits, ready, leased = EntryStatus.WAITING, EntryStatus.READY, EntryStatus.LEASED
    assert now == [None, None, waits, ready, leased]
    entries = partition.ledger.entries
    assert entries[2].due_ms == world.clock.monotonic_ms() + 5_000
    assert (entries[3].attempt, entries[4].attempt) == (0, 1)  # a release does not count
    assert partition.ledger.watermark == 2


async def test_a_settle_shows_the_rollback_epoch_of_a_lease_that_was_heard_of(
    world: World,
) -> None:
    partition = await world.owns(0, range(1))
    await world.leases(partition)
    extend, entry = settle(partition, Verb.EXTEND, 0, LEASE_MS), partition.ledger.entries[0]
    entry.rollback_epoch = UNKNOWN_ROLLBACK_EPOCH
    await world.flusher.submit(partition.handle, [extend])
    assert entry.rollback_epoch == extend.rollback_epoch


async def test_times_of_the_store_are_taken_by_this_sidecars_clock(world: World) -> None:
    partition = await world.owns(0, range(2))
    world.data.records[partition.key].shift_ms = -5_000  # it is ahead
    await world.leases(partition, 2)
    entries, retry = partition.ledger.entries, settle(partition, Verb.RETRY, 1, LEASE_MS)
    due_ms = world.clock.monotonic_ms() + LEASE_MS
    assert (entries[0].due_ms, entries[0].when_ms) == (due_ms, due_ms + 5_000)
    world.clock.pass_ms(10)
    await world.flusher.submit(partition.handle, [retry])
    extend = settle(partition, Verb.EXTEND, 0, LEASE_MS)
    await world.flusher.submit(world.handle(), [extend])
    await partition.flush()
    assert (entries[0].due_ms, entries[1].due_ms) == (due_ms + 10, due_ms + 10)
    await reread(world, partition)
    entries = partition.ledger.entries
    assert (entries[0].due_ms, entries[1].due_ms) == (due_ms + 10, due_ms + 10)


async def test_r4_the_ack_of_a_lease_that_has_moved_ends_it(world: World) -> None:
    """A repair must not give it back."""
    partition = await world.owns(0, range(1))
    await world.leases(partition)
    ack, moved = settle(partition, Verb.ACK, 0), partition.ledger.send_back.sent_before
    partition.send_back([Stuck(0, Why.AGE)])
    await world.flusher.idle()
    assert moved[0].lease is not None
    await world.flusher.submit(partition.handle, [ack])
    assert [each.lease for each in moved.values()] == [None]


async def test_whether_the_record_has_texts_and_notes_is_known_from_replies(world: World) -> None:
    partition = await world.owns(0, range(2))
    assert (partition.has_texts, partition.has_notes) == (True, True)  # perhaps
    await world.leases(partition, 2)
    assert (partition.has_texts, partition.has_notes) == (False, False)
    items = [ItemTexts(0, note=b"half"), ItemTexts(1, note=b"done")]
    ops = [settle(partition, Verb.EXTEND, n, LEASE_MS) for n in range(2)]
    partition.tell(*ops, texts=CallTexts(items, 4))
    await world.flusher.idle()
    assert (partition.has_texts, partition.has_notes) == (True, True)
    assert world.count("ackd_notes_dropped_total", subscription=NAME) == 1
    await world.flusher.submit(partition.handle, [settle(partition, Verb.ACK, 1)])
    assert (partition.has_texts, partition.has_notes) == (False, False)


async def test_r19_messages_move_in_one_call_and_in_their_order(world: World) -> None:
    """Each has a generation of its own. What was never delivered stays."""
    partition = await world.owns(0, range(3))
    await world.leases(partition, 2)
    asked(world)
    never = Stuck(2, Why.DELAY)
    partition.send_back([Stuck(1, Why.SPAN), Stuck(0, Why.AGE), never])
    await world.flusher.idle()
    ((first, second, _),) = asked(world)
    assert isinstance(first, MoveToRetry)
    assert isinstance(second, MoveToRetry)
    assert (first.offset, second.offset) == (1, 0)
    moved = world.events.effects
    assert isinstance(moved[0], SendBack)
    assert isinstance(moved[1], SendBack)
    assert moved[0].generation < moved[1].generation
    for reason, count in (("age", 1), ("span", 1), ("delay", 0)):
        labels = {"subscription": NAME, "reason": reason}
        assert world.count("ackd_retry_topic_moves_total", **labels) == count


async def test_r19_what_blocks_a_key_is_asked_of_the_store(world: World) -> None:
    told: list[OpResult] = []
    wiring = replace(world.events.wiring(), blocked=lambda _, result: told.append(result))
    partition = await world.owns(0, range(2), policy=IN_ORDER, wiring=wiring)
    await world.leases(partition)
    partition.send_back([Stuck(0, Why.AGE, KEY)])
    partition.ask_blockers([KEY])
    await world.flusher.idle()
    (blocked,) = told
    assert blocked.blocked_by.offset == 0
    assert not partition.ledger.ready


async def test_r19_the_next_message_of_a_key_that_is_free_is_ready(world: World) -> None:
    partition = await world.owns(0, policy=IN_ORDER)
    assert partition.ledger.order is not None
    partition.ledger.order.block(KEY)
    world.fetches(partition, range(2))
    assert partition.ledger.ready == 0
    asked(world)
    partition.ask_blockers([KEY])
    await world.flusher.idle()
    assert asked(world) == [[AskBlocker(KEY)]]
    assert partition.ledger.ready == 1
    assert "blocked" not in world.events.seen


async def test_a_copy_that_has_its_slot_is_ready_and_its_origin_record_is_closed(
    world: World,
) -> None:
    partition = await copies_of(world)
    assert status(partition, 0) is EntryStatus.CLAIMING
    await partition.flush(partition.copies.place(0, 9, 4, 0, 0))
    assert status(partition, 0) is EntryStatus.READY
    assert world.events.effects == [Claim(0), CloseOriginRecord(0)]


async def test_a_copy_whose_origin_record_is_dead_is_dead_at_once(world: World) -> None:
    """It is never ready in between: only the second of the two answers counts."""
    partition = await copies_of(world)
    await partition.flush(*partition.copies.place_dead(0, 9, 4, 0))
    assert status(partition, 0) is EntryStatus.DEAD
    assert world.events.effects == [Claim(0), SendDead(0, 9, 4), CloseOriginRecord(0)]


# --- effects


async def test_messages_whose_attempts_are_used_up_are_marked_dead_in_one_call(
    world: World,
) -> None:
    partition = await world.owns(0, range(2), policy=PLAIN._replace(deliveries_max=1))
    await world.leases(partition, 2)
    fence = partition.ledger.entries[0].fence
    asked(world)
    time_passes(world, partition, LEASE_MS)
    await world.flusher.idle()
    assert asked(world) == [[MarkDead(0, fence, 1), MarkDead(1, fence, 1)]]
    assert world.events.effects == [SendDead(0, fence, 1), SendDead(1, fence, 1)]
    assert "reload" not in world.events.seen


async def test_a_message_that_is_too_old_is_dead_after_any_number_of_deliveries(
    world: World,
) -> None:
    policy = PLAIN._replace(deliveries_max=9, message_ttl_ms=LEASE_MS)
    partition = await world.owns(0, range(1), policy=policy)
    await world.leases(partition)
    fence = partition.ledger.entries[0].fence
    partition.copies.failed_with(0, "its worker's own reason")
    asked(world)
    time_passes(world, partition, LEASE_MS + 1_000)
    await world.flusher.idle()
    assert asked(world) == [[MarkDead(0, fence, 0)]]
    assert world.events.effects == [SendDead(0, fence, 1)]
    assert "message_ttl_ms" in partition.copies.reason(0)


async def test_changed_limits_count_for_messages_that_are_here(world: World) -> None:
    partition = await world.owns(0, range(2))
    await world.leases(partition)
    partition.go_by(PLAIN._replace(deliveries_max=1))
    time_passes(world, partition, LEASE_MS)
    await world.flusher.idle()
    assert status(partition, 0) is EntryStatus.DEAD
    await world.leases(partition, lease_ms=1)
    partition.go_by(PLAIN._replace(message_ttl_ms=LEASE_MS))
    time_passes(world, partition, 1)
    assert status(partition, 1) is EntryStatus.READY
    time_passes(world, partition, LEASE_MS + 1_000)
    await world.flusher.idle()
    assert status(partition, 1) is EntryStatus.DEAD
    rules = Rules(9, 9, 9)
    partition.go_by(PLAIN._replace(rules=rules))
    assert partition.ledger.send_back.rules == rules


async def test_whoever_serves_receives_is_told_of_ready_messages_unless_it_has_them_queued(
    world: World,
) -> None:
    partition = await world.owns()
    assert "ready" not in world.events.seen
    partition.has_turn(queued=True)
    world.fetches(partition, range(1))
    assert "ready" not in world.events.seen
    partition.has_turn(queued=False)
    partition.perform()
    assert world.events.seen.count("ready") == 1


async def test_new_deadlines_and_changes_are_told(world: World) -> None:
    told: list[object] = []
    wiring = replace(
        world.events.wiring(),
        due=told.append,
        performed=(lambda each: told.append(each.tp), lambda _: told.append("performed")),
    )
    partition = await world.owns(0, range(1), wiring=wiring)
    changed = world.context.lease_events.listen(NAME)
    told.clear()
    await world.leases(partition)
    due_ms = world.clock.monotonic_ms() + LEASE_MS
    assert told == [partition.tp, "performed", due_ms]
    assert changed.is_set()
    partition.perform()
    assert told[3:] == [partition.tp, "performed"]  # nothing new is due


# --- what is known of it


async def test_what_others_report_is_kept(world: World) -> None:
    partition = await world.owns()
    assert (partition.committed, partition.end, partition.data_lost) == (-1, -1, False)
    partition.committed_at(7, 3)
    assert (partition.committed, partition.committed_version) == (7, 3)
    partition.committed_at(5, 4)  # after a reset
    assert (partition.committed, partition.committed_version) == (5, 4)
    partition.log_reaches(9)
    partition.log_reaches(8)
    assert partition.end == 9
    partition.lost_data()
    assert partition.data_lost


async def test_it_goes_by_its_policy(world: World) -> None:
    plain = await world.owns(0)
    other = await world.owns(1, policy=COPIES._replace(unordered=True, message_ttl_ms=9))
    assert (plain.ledger.holds_copies, other.ledger.holds_copies) == (False, True)
    assert not isinstance(plain.ledger, UnorderedLedger)
    assert isinstance(other.ledger, UnorderedLedger)
    assert other.ledger.limits.message_ttl_ms == 9
    assert other.tp == TopicPartition(TOPIC, 1)
