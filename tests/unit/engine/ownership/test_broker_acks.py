"""Brokers that keep acks themselves: who draws, which message is which, its ack (R31, R32)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from ackd.api.messages import Delivery
from ackd.core.ids import TopicPartition
from ackd.core.known_ids import STEP_MS
from ackd.core.log_generations import GENERATION, partition_of
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import Verb
from ackd.core.sources import BLOCK, COPIES
from ackd.engine.base.tasks import Tasks
from ackd.engine.ownership.broker_acks import (
    CUT_SHOWN_MS,
    KEEP_MS,
    LAPSE_MS,
    LOOK_MS,
    SHARE_MS,
    WAIT_MS,
    BrokerAckFlow,
)
from ackd.engine.ownership.records import Records
from ackd.engine.partition.partition import Partition, Policy
from ackd.errors import StoreError
from ackd.ports import (
    Arrival,
    Arrived,
    Assigned,
    AssignedPlace,
    Condition,
    Drew,
    Record,
    Revoked,
    Source,
    StoredAt,
)
from ackd.store.places import MemoryPlaces
from tests.unit.engine.world import ME, TOPIC, TOPIC_ID, World, record

if TYPE_CHECKING:
    from ackd.engine.cluster.membership import Membership

UNORDERED = Policy(None, 0, retry_copies=False, unordered=True)
TP = TopicPartition(TOPIC, 0)
NEXT = TopicPartition(TOPIC, partition_of(0, 1))


class Acks:
    """`ackd.ports.BrokerSideAcks`: what the adapter was told."""

    def __init__(self) -> None:
        self.places: dict[bytes, AssignedPlace] = {}
        self.given_back: list[bytes] = []
        self.acked: list[tuple[TopicPartition, tuple[int, ...]]] = []
        self.holds: list[tuple[bytes, AssignedPlace]] = []
        self.gone: set[int] = set()

    hold_ms = 15_000

    def placed(self, topic: str, message: bytes, place: AssignedPlace) -> None:
        assert topic == TOPIC
        self.places[message] = place

    def unwanted(self, topic: str, message: bytes) -> None:
        del topic
        self.given_back.append(message)

    def finished(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        self.acked.append((partition, tuple(offsets)))

    def kept(self, topic: str) -> list[tuple[bytes, AssignedPlace]]:
        assert topic == TOPIC
        return self.holds

    def source(self, partition: TopicPartition) -> Source:
        """Sixteen queues each, as the store numbers them."""
        number = partition.partition % GENERATION
        broker = number // BLOCK
        return Source(partition.topic, f"broker-{broker}", number % BLOCK, broker in self.gone)


class Choice:
    """Which sidecars there are, as the members' view says it."""

    def __init__(self) -> None:
        self.who: str | list[str] = ME
        self.sure = True

    def staying(self) -> list[str]:
        return self.who if isinstance(self.who, list) else [self.who]

    def confirmed(self) -> bool:
        return self.sure

    async def jump_ms(self) -> int:
        return 0


class Flow:
    """The flow of one subscription."""

    def __init__(self, world: World) -> None:
        self.world, self.acks, self.choice = world, Acks(), Choice()
        self.assigned: list[TopicPartition] = []
        self.gone: list[tuple[TopicPartition, ...]] = []
        self.flow = BrokerAckFlow(
            world.state,
            self.acks,
            world.context,
            world.partitions,
            world.topics,
            cast("Membership", self.choice),
            Records(world.context, world.partitions, cast("Membership", self.choice)),
            self._assign,
            self._revoked,
        )

    def _assign(self, tp: TopicPartition) -> None:
        self.assigned.append(tp)
        self.world.partitions.assigned[tp] = None

    async def _revoked(self, event: Revoked) -> None:
        self.gone.append(event.partitions)
        for tp in event.partitions:
            del self.world.partitions.assigned[tp]
        event.done()

    async def owns(self, number: int = 0) -> Partition:
        await self.world.topics.read()
        return await self.world.owns(number, policy=UNORDERED)

    async def arrives(
        self, *offsets: int, number: int = 0, again: int = 0, name: bytes = b"m", stored_ms: int = 0
    ) -> None:
        """These messages come; `again`: as copies of the broker, under so much higher offsets."""
        arrivals = [
            Arrival(
                b"%b%d" % (name, each),
                AssignedPlace(number + (COPIES if again else 0), each + again),
                Record(each + again, None, b"v", (), 1),
                stored_ms,
            )
            for each in offsets
        ]
        await self.flow.on(Arrived(TOPIC, arrivals))

    async def cut(self) -> Partition:
        """Ten messages are finished; then there are five new ones at offsets of theirs."""
        await self.flow.on(Assigned((TP,)))
        partition = await self.owns()
        await self.arrives(*range(10), stored_ms=1_000)
        for delivery in await self.world.leases(partition, 10):
            await acks(self, partition, delivery)
        self.flow.over(partition)
        assert partition.ledger.watermark == 10
        self.acks.acked.clear()
        await self.arrives(*range(5, 10), name=b"new", stored_ms=2_000)
        return partition

    @contextmanager
    def failing(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The store knows no places meanwhile."""

        async def away(*_: object) -> None:
            raise StoreError("away")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryPlaces, "assign", away)
            yield


async def acks(flow: Flow, partition: Partition, delivery: Delivery) -> None:
    """As an application does."""
    token = flow.world.context.keys.open(delivery.lease)
    ack = Settle(Verb.ACK, token.offset, token.fence, token.rollback_epoch, attempt=token.attempt)
    await flow.world.flusher.submit(partition.handle, [ack])


@pytest.fixture
async def flow(world: World) -> Flow:
    return Flow(world)


@pytest.fixture
async def running(flow: Flow) -> AsyncIterator[Flow]:
    """The flow with its own task."""
    tasks = Tasks("flow")
    tasks.start(flow.flow.run(), "acks")
    yield flow
    await tasks.stop()


# --- who draws --------------------------------------------------------------------------------


async def test_one_living_sidecar_draws_from_a_topic(running: Flow) -> None:
    """R5: the broker would give to all; when another one is chosen, ours goes in good order."""
    await running.flow.on(Assigned((TP,)))
    assert running.assigned == [TP]
    assert running.world.state.health.assigned_once
    await asyncio.sleep(2 * SHARE_MS / 1000)
    assert running.assigned == [TP]
    running.choice.who = "another"
    await asyncio.sleep(SHARE_MS / 1000)
    assert running.gone == [(TP,)]
    running.choice.who = ME
    await asyncio.sleep(SHARE_MS / 1000)
    assert running.assigned == [TP, TP]


async def test_r5_each_broker_of_a_topic_is_drawn_by_another_sidecar(running: Flow) -> None:
    """One that is gone is shared apart, so that nobody has it in place of work."""
    parts = [TopicPartition(TOPIC, number * BLOCK + queue) for number in (0, 1) for queue in (0, 1)]
    await running.flow.on(Assigned(tuple(parts)))
    assert running.assigned == parts
    running.choice.who = [ME, "another"]
    await asyncio.sleep(SHARE_MS / 1000)
    [gone] = running.gone
    assert gone in (tuple(parts[:2]), tuple(parts[2:]))
    running.acks.gone = {1}
    running.choice.who = [ME]
    await asyncio.sleep(SHARE_MS / 1000)
    assert {*running.world.partitions.assigned} == {*parts}
    third = tuple(TopicPartition(TOPIC, 2 * BLOCK + queue) for queue in (0, 1))
    await running.flow.on(Assigned(third))
    running.choice.who = [ME, "another"]
    await asyncio.sleep(SHARE_MS / 1000)
    working = {tp.partition // BLOCK for tp in running.world.partitions.assigned} - {1}
    assert len(working) == 1


async def test_who_does_not_know_the_others_chooses_nothing(running: Flow) -> None:
    running.choice.sure = False
    await running.flow.on(Assigned((TP,)))
    assert running.assigned == []
    running.choice.sure = True
    await asyncio.sleep(SHARE_MS / 1000)
    assert running.assigned == [TP]


# --- messages ---------------------------------------------------------------------------------


async def test_a_message_keeps_its_place_whatever_it_comes_under_later(flow: Flow) -> None:
    """R31: it is the same message to the record, which counts its attempts."""
    partition = await flow.owns()
    await flow.arrives(0, 1)
    assert partition.ledger.ready == 2
    await flow.arrives(0, again=50)
    assert flow.acks.places == {b"m0": AssignedPlace(0, 0), b"m1": AssignedPlace(0, 1)}
    assert partition.ledger.ready == 2
    assert flow.acks.given_back == []


async def test_what_no_partition_here_takes_may_come_again_elsewhere(flow: Flow) -> None:
    await flow.flow.on(Assigned((TP, TopicPartition(TOPIC, 3))))
    await flow.owns()
    await flow.arrives(7, number=3)
    assert flow.acks.given_back == [b"m7"]
    flow.world.topics.known.clear()
    await flow.arrives(8)
    assert flow.acks.given_back == [b"m7", b"m8"]


async def test_a_finished_message_that_comes_again_is_acked_and_not_delivered(
    flow: Flow,
) -> None:
    """I2: the broker forgot the ack, the record did not."""
    partition = await flow.owns()
    await flow.arrives(0, 1)
    [delivery] = await flow.world.leases(partition)
    offset = delivery.record.offset
    await acks(flow, partition, delivery)
    flow.flow.over(partition)
    assert flow.acks.acked == [(TP, (offset,))]
    flow.flow.over(partition)
    assert len(flow.acks.acked) == 1
    await flow.arrives(offset)
    assert flow.acks.acked[1:] == [(TP, (offset,))]
    assert flow.world.count("ackd_acked_again_total", subscription="work") == 1


async def test_messages_wait_here_while_the_store_is_away(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R32: given back, each would cost an attempt at the broker."""
    partition = await flow.owns()
    async with asyncio.TaskGroup() as group:
        with flow.failing(monkeypatch):
            group.create_task(flow.arrives(0))
            await asyncio.sleep(60)
            assert (flow.acks.given_back, flow.acks.places) == ([], {})
            assert "away" in flow.world.state.health.detail
        await asyncio.sleep(SHARE_MS / 1000)
        assert partition.ledger.ready == 1


# --- offsets that are used again --------------------------------------------------------------


async def test_i1_a_message_at_a_used_offset_is_delivered_and_not_taken_for_the_finished_one(
    flow: Flow,
) -> None:
    """R1: this sidecar adds the partition of the log's next generation, and the messages wait."""
    old = await flow.cut()
    assert flow.assigned == [TP, NEXT]
    assert (flow.acks.acked, flow.acks.given_back) == ([], [])
    new = await flow.owns(NEXT.partition)
    flow.flow.taken()
    assert new.ledger.ready == 5
    got = {each.record.offset for each in await flow.world.leases(new, 5)}
    assert got == set(range(5, 10))
    # The old ones are what they were: finished, and acked at the broker if they come again.
    await flow.arrives(*range(10), stored_ms=1_000)
    assert flow.acks.acked == [(TP, tuple(range(10)))]
    assert old.ledger.ready == 0
    # What follows goes to the new partition at once.
    await flow.arrives(10, name=b"new", stored_ms=2_100)
    assert new.ledger.ready == 1
    assert flow.acks.places[b"new10"] == AssignedPlace(NEXT.partition, 10)


async def test_a_log_that_was_cut_is_told_and_counted(
    running: Flow, caplog: pytest.LogCaptureFixture
) -> None:
    """R1: readiness names it for an hour."""
    with caplog.at_level(logging.WARNING, "ackd.engine"):
        await running.cut()
    world, code = running.world, f"log-cut/{TP}"
    assert world.count("ackd_log_cuts_total", subscription="work") == 1
    told = world.state.conditions[code]
    assert told.warning
    assert "queue 0 of broker-0: the broker uses offsets again, at latest from 5 on" in told.detail
    assert told.detail in caplog.text
    await asyncio.sleep(CUT_SHOWN_MS / 1000 - 60)
    assert code in world.state.conditions
    await asyncio.sleep(60 + LOOK_MS / 1000)
    assert code not in world.state.conditions
    assert world.count("ackd_log_cuts_total", subscription="work") == 1


async def test_messages_do_not_wait_for_ever_for_a_partition_that_nobody_takes(
    running: Flow,
) -> None:
    await running.cut()
    await asyncio.sleep(WAIT_MS / 1000 - 1)
    assert running.acks.given_back == []
    await asyncio.sleep(2)
    assert running.acks.given_back == [b"new%d" % each for each in range(5, 10)]
    await running.arrives(11, name=b"new", stored_ms=2_100)
    assert running.acks.given_back[5:] == [b"new11"]


async def test_messages_that_wait_go_back_when_another_sidecar_draws(running: Flow) -> None:
    await running.cut()
    running.choice.who = "another"
    await asyncio.sleep(2 * SHARE_MS / 1000)
    assert running.gone == [(TP, NEXT)]
    assert len(running.acks.given_back) == 5
    await running.arrives(12, name=b"new", stored_ms=2_100)
    assert len(running.acks.given_back) == 6


async def test_who_does_not_draw_takes_no_new_partition(flow: Flow) -> None:
    flow.choice.who = "another"
    await flow.owns()
    await flow.arrives(9, stored_ms=1_000)
    await flow.arrives(3, name=b"new", stored_ms=2_000)
    assert flow.acks.given_back == [b"new3"]
    assert flow.assigned == []


async def test_after_a_restart_the_partition_is_found_by_its_messages(flow: Flow) -> None:
    """The adapter of a new process knows only the broker's queues."""
    held = [(b"held", AssignedPlace(NEXT.partition, 7))]
    await flow.world.store.places.remember("work", TOPIC_ID, KEEP_MS, held)
    await flow.flow.on(Assigned((TP,)))
    await flow.owns()
    await flow.flow.on(Arrived(TOPIC, [Arrival(b"held", AssignedPlace(0, 7), record(7), 2_000)]))
    assert flow.assigned == [TP, NEXT]
    new = await flow.owns(NEXT.partition)
    flow.flow.taken()
    assert (new.ledger.ready, flow.acks.given_back) == (1, [])


# --- in the background ------------------------------------------------------------------------


async def test_acks_that_were_missed_are_made_up_for(running: Flow) -> None:
    """Finished while the record was read again, so nobody told."""
    partition = await running.owns()
    await running.arrives(0, 1)
    [delivery] = await running.world.leases(partition)
    await acks(running, partition, delivery)
    running.acks.holds = [(b"m0", AssignedPlace(0, 0)), (b"m1", AssignedPlace(0, 1))]
    await asyncio.sleep((LOOK_MS + SHARE_MS) / 1000)
    assert running.acks.acked == [(TP, (0,))]


async def test_what_is_held_for_long_keeps_its_name(running: Flow) -> None:
    """The store forgets places; this sidecar reminds it of those that it holds."""
    await running.owns()
    await running.arrives(0)
    running.acks.holds = [(b"m0", AssignedPlace(0, 0))]
    await working(running)
    await running.arrives(0, again=50)
    assert running.acks.places[b"m0"] == AssignedPlace(0, 0)
    running.acks.holds = []
    await asyncio.sleep(100 * KEEP_MS / 1000)
    await running.arrives(0, again=50)
    assert running.acks.places[b"m0"] == AssignedPlace(0, 0), "no time counts in which none comes"
    await working(running)
    await running.arrives(0, again=50)
    assert running.acks.places[b"m0"] == AssignedPlace(COPIES, 50)


async def working(flow: Flow) -> None:
    """Other messages come, for longer than an id is known that nobody tells again."""
    for number in range(2 * KEEP_MS // STEP_MS):
        await asyncio.sleep(STEP_MS / 1000)
        await flow.arrives(1_000 + number, name=b"other")


@pytest.mark.parametrize("steady", [True, False])
async def test_a_gap_ends_when_the_broker_would_have_sent_it_long_ago(
    running: Flow, *, steady: bool
) -> None:
    """I5; not while it is away, as it sends again what it had sent shortly before that."""
    partition = await running.owns()
    await running.arrives(5)
    if not steady:
        running.world.state.conditions["away"] = Condition("away", "no answer", away=True)
    await asyncio.sleep(LAPSE_MS / 1000 - 60)
    assert partition.ledger.watermark == 0
    await asyncio.sleep(180)
    assert partition.ledger.watermark == (5 if steady else 0)


@pytest.mark.parametrize("text", ["", "paid"])
async def test_i1_i5_only_where_there_is_a_filter_gaps_end_after_seconds(
    running: Flow, text: str
) -> None:
    """Else somebody moved the group ahead at the broker alone, and may move it back."""
    state = running.world.state
    state.configured = replace(state.configured, filter=text)
    partition = await running.owns()
    partition.created = True
    await running.arrives(0, 4)
    partition.ledger.acked([0, 4])
    for _ in range(60):
        await asyncio.sleep(1)
        await running.flow.on(Drew(TOPIC, running.world.context.clock.monotonic_ms(), 0))
    assert partition.ledger.watermark == (5 if text else 1)


# --- what another sidecar draws ---------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "paid"])
async def test_i1_what_comes_to_a_question_of_before_it_let_go_of_the_queue(
    flow: Flow, text: str
) -> None:
    """Behind a filter it gets no place, as the successor may have passed over the offset before the
    message comes to it as a copy.
    """
    flow.world.state.configured = replace(flow.world.state.configured, filter=text)
    await flow.owns()
    flow.flow._offered[TP] = None
    del flow.world.partitions.owned[TP]
    await flow.arrives(3)
    assert (flow.acks.given_back, flow.acks.places) == ([b"m3"], {})
    copy = AssignedPlace(COPIES, 53)
    known = await flow.world.store.places.assign(
        "work", TOPIC_ID, KEEP_MS, [StoredAt(b"m3", copy, 0)]
    )
    assert known.places == [copy if text else AssignedPlace(0, 3)]


async def test_i1_after_an_outage_of_the_store_it_asks_whose_the_messages_are(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await flow.owns()
    for taken in (False, True):
        async with asyncio.TaskGroup() as group:
            with flow.failing(monkeypatch):
                group.create_task(flow.arrives(0))
                await asyncio.sleep(1)
                if taken:
                    partition.handle.term -= 1
            await asyncio.sleep(SHARE_MS / 1000)
    assert partition.ledger.ready == 1
    assert flow.acks.given_back == [b"m0"]
