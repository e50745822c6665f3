"""Brokers that keep acks themselves: who draws, which message is which, its ack (R31, R32)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import pytest

from ackd.api.messages import Delivery
from ackd.core.ids import TopicPartition
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import Verb
from ackd.engine.base.tasks import Tasks
from ackd.engine.ownership.broker_acks import KEEP_MS, LAPSE_MS, LOOK_MS, SHARE_MS, BrokerAckFlow
from ackd.engine.partition.partition import Partition, Policy
from ackd.errors import StoreError
from ackd.ports import Arrival, Arrived, Assigned, AssignedPlace, Condition, Record, Revoked
from ackd.store.places import MemoryPlaces
from tests.unit.engine.world import ME, TOPIC, World

if TYPE_CHECKING:
    from ackd.engine.cluster.membership import Membership

UNORDERED = Policy(None, 0, retry_copies=False, unordered=True)
TP = TopicPartition(TOPIC, 0)


class Acks:
    """`ackd.ports.BrokerSideAcks`: what the adapter was told."""

    def __init__(self) -> None:
        self.places: dict[bytes, AssignedPlace] = {}
        self.given_back: list[bytes] = []
        self.acked: list[tuple[TopicPartition, tuple[int, ...]]] = []
        self.holds: list[tuple[bytes, AssignedPlace]] = []

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


class Choice:
    """Which sidecar draws from a topic, as the members' view says it."""

    def __init__(self) -> None:
        self.who, self.sure = ME, True

    @property
    def view(self) -> Choice:
        return self

    def winner(self, topic: str) -> str:
        assert topic == TOPIC
        return self.who

    def confirmed(self) -> bool:
        return self.sure


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

    async def arrives(self, *offsets: int, number: int = 0, again: int = 0) -> None:
        """These messages come; `again`: under so much higher offsets than they had."""
        arrivals = [
            Arrival(
                b"m%d" % each,
                AssignedPlace(number, each + again),
                Record(each + again, None, b"v", (), 1),
            )
            for each in offsets
        ]
        await self.flow.on(Arrived(TOPIC, arrivals))

    @contextmanager
    def failing(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The store knows no places meanwhile."""

        async def away(*_: object) -> list[AssignedPlace]:
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
    await asyncio.sleep(5 * KEEP_MS / 1000)
    await running.arrives(0, again=50)
    assert running.acks.places[b"m0"] == AssignedPlace(0, 0)
    running.acks.holds = []
    await asyncio.sleep(5 * KEEP_MS / 1000)
    await running.arrives(0, again=50)
    assert running.acks.places[b"m0"] == AssignedPlace(0, 50)


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
