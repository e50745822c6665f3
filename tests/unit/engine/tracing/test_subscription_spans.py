"""Spans of a subscription: settles of other owners' leases, late ones, and what operators do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ackd.core.ids import LedgerKey
from ackd.core.lease_token import Token
from ackd.core.origin import Origin
from ackd.core.record.operations import Op, Settle
from ackd.core.record.protocol import RecordReply
from ackd.core.record.transitions import Verb
from ackd.engine.base.live import Live
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.engine.partition.partition import Partition
from ackd.engine.tracing import subscription_spans
from ackd.engine.tracing.subscription_spans import ASK_MS, HOLDERS_MAX, UNPLACED_MS
from ackd.ports import TopicInfo
from ackd.telemetry.caller import calling
from ackd.telemetry.spans import SpanEvent
from tests.unit.engine.retry_stage import RETRY_ID
from tests.unit.engine.tracing.span_stage import SpanStage
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

ORIGIN = Origin("cluster", TOPIC_ID, TOPIC, 0, 7)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Elsewhere(SpanStage):
    """Another sidecar owns partition 0 and has leased messages; this one serves their settles."""

    partition: Partition

    async def begin(self, count: int = 1) -> None:
        world = self.world
        self.partition = await world.owns(0, range(count))
        await world.leases(self.partition, count)
        world.partitions.remove(self.partition)

    def settle(self, verb: Verb, offset: int = 0, for_ms: int = 0, **more: bool) -> Settle:
        entry = self.partition.ledger.entry(offset)
        assert entry is not None
        return Settle(verb, offset, entry.fence, 1, entry.attempt, for_ms, **more)

    async def serves(self, *ops: Settle, topic_id: bytes = TOPIC_ID, here: bool = False) -> None:
        """Settle in one call, and tell the spans."""
        reply: RecordReply = await self.world.flusher.submit(self.world.handle(), list[Op](ops))
        tokens = [Token(b"work", topic_id, 0, op.offset, op.fence, 1, op.attempt) for op in ops]
        if here:
            self.world.partitions.add(self.partition)
        self.spans.settled(tokens, ops, reply)


@pytest.fixture
async def stage(world: World) -> Elsewhere:
    return Elsewhere(world)


# --- leases of others


async def test_settles_of_another_owner_s_leases_are_told_here_too(stage: Elsewhere) -> None:
    """At the moment there may be no owner. Its span would have the same ids."""
    await stage.begin(3)
    await stage.serves(
        stage.settle(Verb.ACK, 0),
        stage.settle(Verb.RETRY, 1, 5_000, counted=False),
        stage.settle(Verb.RELEASE, 2),
    )
    found = {each["ackd.event"]: each for each in stage.seen()}
    assert sorted(found) == ["ack", "release", "retry"]
    assert found["ack"]["messaging.message.id"] == "orders/0/0"
    assert found["retry"]["ackd.due.unix_ms"] == stage.world.clock.wall_ms() + 5_000
    assert found["retry"]["ackd.uncounted"] is True
    lives = stage.spans.lives(ORIGIN, 0)
    assert found["ack"]["trace"] == f"{lives.trace(0):032x}"
    assert stage.balanced()


async def test_an_owner_s_own_settles_are_told_by_its_partition(stage: Elsewhere) -> None:
    await stage.begin()
    await stage.serves(stage.settle(Verb.ACK), here=True)
    assert stage.seen() == []
    assert stage.balanced()


async def test_an_extend_of_another_owner_s_lease_ends_nothing(stage: Elsewhere) -> None:
    await stage.begin()
    await stage.serves(stage.settle(Verb.EXTEND, for_ms=60_000))
    assert stage.seen() == []


async def test_an_ack_that_is_repeated_says_so(stage: Elsewhere) -> None:
    await stage.begin()
    ack = stage.settle(Verb.ACK)
    await stage.serves(ack)
    await stage.serves(ack)
    first, again = stage.seen("ack")
    assert "ackd.repeat" not in first
    assert again["ackd.repeat"] is True


async def test_first_acks_are_sampled_and_what_is_left_out_is_not_expected(world: World) -> None:
    stage = Elsewhere(world, sample=0.0001)
    await stage.begin(2)
    await stage.serves(stage.settle(Verb.ACK, 0), stage.settle(Verb.RETRY, 1, 1))
    assert [each["ackd.event"] for each in stage.seen()] == ["retry"]
    assert stage.balanced()


async def test_a_settle_whose_lease_was_lost_is_told_as_late(stage: Elsewhere) -> None:
    await stage.begin()
    retry = stage.settle(Verb.RETRY, for_ms=60_000)
    await stage.serves(retry)
    await stage.serves(stage.settle(Verb.ACK), here=True)
    (late,) = stage.seen("late")
    assert (late["ackd.late.of"], late["messaging.message.id"]) == ("ack", "orders/0/0")


# --- topics that are not known yet


async def test_a_settle_waits_until_its_topic_is_known(world: World, stage: Elsewhere) -> None:
    """A sidecar that has just started may serve some before it has asked the broker."""
    await stage.begin()
    known, world.topics.known = world.topics.known, {}
    await stage.serves(stage.settle(Verb.ACK))
    assert stage.seen() == []
    assert not stage.balanced(), "a crash now would lose it"
    world.topics.known = known
    assert [each["ackd.event"] for each in stage.seen()] == ["ack"]
    assert stage.balanced()


async def test_the_broker_is_asked_for_a_topic_that_is_not_known(
    world: World, stage: Elsewhere
) -> None:
    """A sidecar that owns nothing has had no other reason to ask. While the broker is away it asks
    no more often than every two seconds.
    """
    await stage.begin(2)
    known, world.topics.known = world.topics.known, {}
    world.consumer.known, world.consumer.away = list(known.values()), True
    await stage.serves(stage.settle(Verb.ACK, 0))
    await asyncio.sleep(0)
    world.consumer.away = False
    assert stage.seen() == []
    world.clock.pass_ms(ASK_MS - 1)
    assert stage.seen() == []
    await asyncio.sleep(0)
    assert stage.seen() == []
    world.clock.pass_ms(1)
    assert stage.seen() == []
    await asyncio.sleep(0)
    assert [each["ackd.event"] for each in stage.seen()] == ["ack"]
    assert stage.balanced()


async def test_a_settle_whose_topic_stays_unknown_counts_as_dropped(
    world: World, stage: Elsewhere
) -> None:
    await stage.begin()
    world.topics.known = {}
    await stage.serves(stage.settle(Verb.ACK))
    stage.seen()
    world.clock.pass_ms(UNPLACED_MS - 1)
    stage.seen()
    assert stage.dropped(SpanEvent.ACK) == 0
    world.clock.pass_ms(1)
    stage.seen()
    assert stage.dropped(SpanEvent.ACK) == 1
    assert stage.balanced()


async def test_i8_only_so_many_wait(
    world: World, stage: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_spans, "UNPLACED_MAX", 1)
    await stage.begin(2)
    world.topics.known, world.consumer.away = {}, True
    await stage.serves(stage.settle(Verb.ACK, 0))
    await stage.serves(stage.settle(Verb.ACK, 1))
    assert stage.dropped(SpanEvent.ACK) == 1


async def test_what_waits_at_the_end_counts_as_dropped(world: World, stage: Elsewhere) -> None:
    await stage.begin()
    world.topics.known = {}
    await stage.serves(stage.settle(Verb.ACK))
    stage.spans.close()
    assert stage.dropped(SpanEvent.ACK) == 1
    assert not stage.collects(stage.spans)
    assert stage.balanced()


async def test_a_copy_s_coordinate_says_nothing_of_its_message(stage: Elsewhere) -> None:
    """Only the owner of the copy can tell of it."""
    await stage.begin()
    await stage.serves(stage.settle(Verb.ACK), topic_id=RETRY_ID)
    assert stage.seen() == []
    assert stage.balanced()


# --- names


async def test_names_of_messages_and_topics_with_slashes(stage: Elsewhere) -> None:
    stage.world.topics.known["tenant/ns/orders"] = TopicInfo("tenant/ns/orders", bytes(16), 1)
    found = stage.spans.named("tenant/ns/orders/3/17")
    assert found == Origin("cluster", bytes(16), "tenant/ns/orders", 3, 17)
    assert stage.spans.named("others/3/17") is None
    assert stage.spans.named("orders") is None


async def test_no_holder_is_no_attribute_and_names_are_kept_bounded(stage: Elsewhere) -> None:
    assert stage.spans.holder("") == ""
    assert '"10.0.0.1"' in stage.spans.holder("10.0.0.1")
    for number in range(2 * HOLDERS_MAX):
        stage.spans.holder(f"worker-{number}")
    assert len(stage.spans._holders) <= HOLDERS_MAX


async def test_lives_are_made_once_and_kept_bounded(
    stage: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stage.spans.lives(ORIGIN, 0)
    assert stage.spans.lives(replace(ORIGIN, offset=9), 0) is first
    assert stage.spans.lives(ORIGIN, 1) is not first
    monkeypatch.setattr(subscription_spans, "LIVES_MAX", 3)
    for partition in range(9):
        stage.spans.lives(replace(ORIGIN, partition=partition), 0)
    assert len(stage.spans._lives) <= 3


async def test_the_epoch_of_a_copy_s_origin(world: World, stage: Elsewhere) -> None:
    partition = await world.owns(0)
    partition.epoch = 4
    assert stage.spans.epoch(ORIGIN) == 4
    assert stage.spans.epoch(replace(ORIGIN, partition=3)) == 0


# --- what operators do


async def test_a_takeover_lasts_from_the_first_try_on(world: World, stage: Elsewhere) -> None:
    partition = await world.owns(0)
    stage.spans.taken(partition, 250)
    (span,) = stage.seen("takeover")
    assert (span["name"], span["ackd.subscription"]) == (f"takeover {TOPIC}", NAME)
    assert span["start"] == (world.clock.wall_ms() - 250) * 1_000_000


async def test_a_seek_that_is_told_again_has_the_same_ids(stage: Elsewhere) -> None:
    """A sidecar that goes on with it after a kill reports it again."""
    key = LedgerKey("cluster", NAME, TOPIC_ID, 0)
    for epoch in (2, 2, 3):
        stage.spans.sought(key, TOPIC, epoch, 40)
    first, again, other = stage.seen("seek")
    assert (first["ackd.seek.offset"], first["ackd.reset.epoch"]) == (40, 2)
    assert first["span"] == again["span"] != other["span"]


async def test_a_live_change_names_what_changed_and_who_asked(stage: Elsewhere) -> None:
    before = Live(version=1, settings={"lease_ms": 5, "in_flight_max": 3})
    after = Live(version=2, settings={"lease_ms": 9, "in_flight_max": 3, "rate": 1})
    with calling({"traceparent": PARENT}):
        stage.spans.changed(before, after)
    (span,) = stage.seen("config")
    assert span["ackd.config.changed"] == "settings,settings.lease_ms,settings.rate"
    assert span["ackd.config.version"] == 2
    assert span["trace"] == "0af7651916cd43dd8448eb211c80319c"


async def test_redriven_letters_are_in_the_trace_of_their_message(stage: Elsewhere) -> None:
    letter = RetryCopy(ORIGIN, NAME, *(9, 7, 5, 4, 0, 900, 800), reset_epoch=2)
    stage.spans.redriven([(letter, "ackd.dead.work/0/3")], 5_000)
    (span,) = stage.seen("redrive")
    assert span["ackd.redriven.from"] == "ackd.dead.work/0/3"
    assert span["trace"] == f"{stage.spans.lives(ORIGIN, 2).trace(7):032x}"
    assert stage.balanced()
