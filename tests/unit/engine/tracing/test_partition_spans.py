"""Spans of the messages of an owned partition: what becomes of each lease is told once."""

from __future__ import annotations

import pytest

from ackd.core.ledger.send_back import Stuck, Why
from ackd.core.record.operations import MarkDead, Op, Settle
from ackd.core.record.protocol import NO_TEXTS
from ackd.core.record.transitions import Verb
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.partition.ordering import position_of
from ackd.engine.partition.partition import Partition, Policy
from ackd.engine.tracing.commit_spans import COMMIT_MS
from ackd.engine.tracing.partition_spans import LAPSED_MS
from ackd.ports import Record
from ackd.telemetry.spans import SpanEvent
from tests.unit.engine.retry_stage import RETRY_ID, RETRY_TOPIC
from tests.unit.engine.tracing.span_stage import SpanStage
from tests.unit.engine.world import LEASE_MS, NAME, World

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
COPIES = Policy(
    None, 0, retry_copies=True, position_of=position_of("none", NAME, retry_copies=True)
)


def settle(partition: Partition, verb: Verb, offset: int, for_ms: int = 0, **more: bool) -> Settle:
    """Of the lease that the message has now."""
    entry = partition.ledger.entry(offset)
    assert entry is not None
    return Settle(verb, offset, entry.fence, 1, entry.attempt, for_ms, **more)


async def does(stage: SpanStage, partition: Partition, *ops: Op, here: bool = True) -> None:
    """Through this sidecar, or through another one: then the journal tells."""
    world = stage.world
    handle = partition.handle if here else world.handle()
    await world.flusher.submit(handle, ops, NO_TEXTS)
    if not here:
        await partition.flush()


# --- one span for what became of a lease


async def test_an_ack_at_the_first_attempt(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    (lease,) = await world.leases(partition, holder="worker-3")
    await does(stage, partition, settle(partition, Verb.ACK, 0))
    (ack,) = stage.seen("ack")
    assert (ack["ackd.delivery.attempt"], ack["ackd.holder"]) == (1, "worker-3")
    assert ack["messaging.message.id"] == "orders/0/0"
    assert ack["ackd.lease.deadline.unix_ms"] == lease.deadline_ms
    assert ack["ackd.publish.unix_ms"] == 1_000
    assert ack["ackd.application"] == "shop"
    assert "ackd.sample.weight" not in ack
    assert stage.balanced()


async def test_the_publisher_s_trace_is_linked(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns()
    traced = Record(0, b"k", b"v", (("traceparent", PARENT),), 1_000)
    intake = partition.ledger.intake
    intake.fetched(intake.session, [traced])
    await world.leases(partition)
    await does(stage, partition, settle(partition, Verb.RETRY, 0, 5_000))
    (retry,) = stage.seen("retry")
    assert retry["links"] == ["0af7651916cd43dd8448eb211c80319c"]
    assert retry["ackd.due.unix_ms"] == world.clock.wall_ms() + 5_000


async def test_settles_through_other_sidecars_are_told_by_the_owner(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0, 1)
    await world.leases(partition, 2)
    ops = settle(partition, Verb.ACK, 0), settle(partition, Verb.RETRY, 1, 5_000)
    await does(stage, partition, *ops, here=False)
    found = stage.seen("ack", "retry")
    assert [(each["ackd.event"], each["messaging.message.id"]) for each in found] == [
        ("retry", "orders/0/1"),
        ("ack", "orders/0/0"),
    ]
    assert stage.balanced()


async def test_a_release_gives_the_attempt_back_and_its_ack_is_kept(world: World) -> None:
    stage = SpanStage(world, sample=0.0001)
    partition = await stage.owns(0)
    await world.leases(partition)
    await does(stage, partition, settle(partition, Verb.RELEASE, 0, counted=False))
    await world.leases(partition)
    await does(stage, partition, settle(partition, Verb.ACK, 0))
    events = [each["ackd.event"] for each in stage.seen("release", "ack")]
    assert events == ["release", "ack"], "whoever sees the release sees how it ended"


async def test_extensions_are_numbered_and_counted_at_the_end(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    await world.leases(partition)
    for _ in range(2):
        world.clock.pass_ms(5)
        await does(stage, partition, settle(partition, Verb.EXTEND, 0, LEASE_MS))
    await does(stage, partition, settle(partition, Verb.ACK, 0))
    found = stage.seen("extend", "ack")
    assert [each["ackd.lease.extensions"] for each in found] == [1, 2, 2]
    assert len({each["span"] for each in found}) == 3


async def test_a_message_that_is_given_up_says_why(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    await world.leases(partition)
    entry = partition.ledger.entry(0)
    assert entry is not None
    await does(stage, partition, settle(partition, Verb.RETRY, 0, 1))
    world.clock.pass_ms(5)
    partition.ledger.tick(world.clock.monotonic_ms())
    partition.copies.going([Stuck(0, Why.AGE)])
    await does(stage, partition, MarkDead(0, entry.fence))
    found = stage.seen("retry", "dead")
    assert [each["ackd.event"] for each in found] == ["retry", "dead"]
    assert found[1]["ackd.reason"] == Why.AGE.value


# --- leases that nobody settled


async def lapses(stage: SpanStage, partition: Partition) -> None:
    """The owner notices that the lease of offset 0 has ended."""
    stage.world.clock.pass_ms(LEASE_MS + 1)
    stage.spans.of(partition).expired([[0]])


async def test_a_lapsed_lease_is_told_when_its_message_goes_on(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    (lease,) = await world.leases(partition, holder="worker-3")
    await lapses(stage, partition)
    partition.ledger.tick(world.clock.monotonic_ms())
    assert stage.seen("expire") == []
    await world.leases(partition, holder="worker-4")
    (expired,) = stage.seen("expire")
    assert (expired["ackd.holder"], expired["end"]) == ("worker-3", lease.deadline_ms * 1_000_000)
    assert stage.seen("expire") == []
    assert stage.balanced()


@pytest.mark.parametrize(("verb", "event"), [(Verb.ACK, "ack"), (Verb.RETRY, "retry")])
async def test_a_settle_that_came_in_time_elsewhere_is_no_expiry(
    world: World, verb: Verb, event: str
) -> None:
    """The owner hears of it a moment later."""
    stage = SpanStage(world)
    partition = await stage.owns(0)
    await world.leases(partition)
    await world.flusher.submit(world.handle(), [settle(partition, verb, 0, 60_000)])
    await lapses(stage, partition)
    await partition.flush()
    world.clock.pass_ms(LAPSED_MS)
    assert [each["ackd.event"] for each in stage.seen(event, "expire")] == [event]


async def test_a_lapsed_lease_whose_message_is_given_up_is_told_before_that(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    await world.leases(partition)
    entry = partition.ledger.entry(0)
    assert entry is not None
    await lapses(stage, partition)
    await does(stage, partition, MarkDead(0, entry.fence))
    assert [each["ackd.event"] for each in stage.seen("expire", "dead")] == ["expire", "dead"]


async def test_a_lapsed_lease_whose_message_nobody_wants_is_told_after_a_while(
    world: World,
) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    await world.leases(partition)
    await lapses(stage, partition)
    world.clock.pass_ms(LAPSED_MS - 1)
    assert stage.seen("expire") == []
    world.clock.pass_ms(1)
    assert len(stage.seen("expire")) == 1


# --- sampling


async def test_only_first_attempts_are_sampled_and_all_acks_are_counted(world: World) -> None:
    stage = SpanStage(world, sample=0.0001)
    partition = await stage.owns(*range(20))
    await world.leases(partition, 20)
    acks = [settle(partition, Verb.ACK, each) for each in range(19)]
    await does(stage, partition, *acks, settle(partition, Verb.RETRY, 19, 1))
    found = stage.seen()
    assert [each["ackd.event"] for each in found if each["ackd.event"] != "receive"] == [
        "retry",
        "settle",
    ]
    (settled,) = [each for each in found if each["ackd.event"] == "settle"]
    assert settled["ackd.offsets"] == "0-18"
    assert stage.balanced()


async def test_what_is_kept_has_the_weight_of_what_is_not(world: World) -> None:
    stage = SpanStage(world, sample=0.5)
    partition = await stage.owns(*range(64))
    await world.leases(partition, 64)
    await does(stage, partition, *[settle(partition, Verb.ACK, each) for each in range(64)])
    kept = stage.seen("ack")
    assert 0 < len(kept) < 64
    assert {each["ackd.sample.weight"] for each in kept} == {2.0}


# --- retry copies


async def test_a_copy_is_told_as_the_message_that_it_stands_for(world: World) -> None:
    """Its spans are in the trace of its origin, whatever sidecar and topic it went through."""
    stage = SpanStage(world)
    origin = (await stage.owns(0)).copies.origin(0)
    copies = await stage.owns(policy=COPIES, topic=(RETRY_TOPIC, RETRY_ID))
    retry_copy = RetryCopy(origin, NAME, *(9, 7, 5, 4, 0, 900, 800), reset_epoch=0)
    lives = stage.spans.lives(origin, 0)
    intake = copies.ledger.intake
    intake.fetched(intake.session, [Record(0, b"k", b"v", retry_copy_headers(retry_copy, ()), 1)])
    await copies.flush()
    stage.spans.copied(SpanEvent.DEAD_LETTER, "ackd.dead.work", copies, 0, 3, 5_000)
    (span,) = stage.seen()
    assert (span["messaging.message.id"], span["ackd.copy.topic"]) == (origin.id, "ackd.dead.work")
    assert span["trace"] == f"{lives.trace(0):032x}"
    assert span["ackd.publish.unix_ms"] == 800


async def test_a_copy_whose_message_nobody_knows_counts_as_dropped(world: World) -> None:
    stage = SpanStage(world)
    copies = await stage.owns(policy=COPIES, topic=(RETRY_TOPIC, RETRY_ID))
    intake = copies.ledger.intake
    intake.fetched(intake.session, [Record(0, b"k", b"v", (), 1)])
    await copies.flush()
    stage.spans.copied(SpanEvent.DEAD_LETTER, "ackd.dead.work", copies, 0, 3, 5_000)
    assert stage.seen() == []
    assert stage.dropped(SpanEvent.DEAD_LETTER) == 1


# --- commits, and the end


async def test_commits_are_told_now_and_then_and_the_last_one_always(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    await partition.flush()
    spans = stage.spans.of(partition)
    spans.committed(3, 10)
    (commit,) = stage.seen()
    assert (commit["ackd.commit.offset"], commit["ackd.commit.lag"]) == (3, 7)
    spans.committed(5, -1)
    assert stage.seen() == [], "too soon"
    world.clock.pass_ms(COMMIT_MS)
    (commit,) = stage.seen()
    assert commit["ackd.commit.offset"] == 5
    assert "ackd.commit.lag" not in commit, "nobody knows where the log ends"
    spans.committed(6, 6)
    partition.closed = True
    (commit,) = stage.seen()
    assert (commit["ackd.commit.offset"], commit["ackd.commit.lag"]) == (6, 0)
    assert not stage.collects(spans), "it is let go"
    assert stage.spans.of(partition) is not spans


async def test_a_copy_that_is_stored_after_its_partition_was_let_go_is_told(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    await world.leases(partition)
    before = stage.spans.of(partition)
    partition.closed = True
    stage.seen()
    assert not stage.collects(before)
    stage.spans.copied(SpanEvent.SEND_BACK, RETRY_TOPIC, partition, 0, 3, 5_000)
    (span,) = stage.seen()
    assert (span["messaging.message.id"], span["ackd.copy.topic"]) == ("orders/0/0", RETRY_TOPIC)


async def test_after_a_reset_a_message_begins_another_life(world: World) -> None:
    stage = SpanStage(world)
    partition = await stage.owns(0)
    spans = stage.spans.of(partition)
    before, after = spans.lives(0), spans.lives(1)
    assert before.trace(0) != after.trace(0)
    assert spans.lives(1) is after
