"""What each event of the broker does: to a ledger, the assignment, readiness (R1, R7, R34)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.base.tasks import Tasks, Vitals
from ackd.engine.cluster.membership import BACK_MS
from ackd.engine.ownership.broker_events import CONDITION, BrokerEvents
from ackd.engine.ownership.hand_over import HANDOVER_MS
from ackd.engine.ownership.leader_epochs import LeaderEpochs
from ackd.engine.ownership.ownership import AGAIN, Ownership
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.copy_filter import OwnCopyFilter
from ackd.errors import AckdError, BrokerError, StoreError
from ackd.ports import (
    Assigned,
    Committed,
    Condition,
    ConsumerEvent,
    EndReached,
    Fetched,
    Lost,
    OutOfRange,
    Revoked,
    TopicReplaced,
)
from tests.unit.engine.world import NAME, TOPIC, TestConsumer, World, record

TP = TopicPartition(TOPIC, 0)


class EventConsumer(TestConsumer):
    """Gives a test's events; a BrokerError among them is raised."""

    def __init__(self) -> None:
        super().__init__()
        self.next: deque[ConsumerEvent | BrokerError] = deque()
        self.more = asyncio.Event()

    async def events(self) -> list[ConsumerEvent]:
        while not self.next:
            self.more.clear()
            await self.more.wait()
        event = self.next.popleft()
        if isinstance(event, BrokerError):
            raise event
        return [event]


class Epochs:
    """Leader epochs: `answer` of the check, or an error."""

    def __init__(self) -> None:
        self.answer: bool | StoreError = True
        self.known = -1

    def of(self, _: Partition) -> int:
        return self.known

    async def fetched(self, partition: Partition, event: Fetched) -> bool:
        if isinstance(self.answer, StoreError):
            raise self.answer
        self.known = event.leader_epoch
        return self.answer


class Owners:
    """What the events ask of `Ownership`, remembered."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []
        self.leader_epochs = Epochs()
        self.fails: AckdError | None = None

    def assign(self, tp: TopicPartition) -> None:
        self.seen.append(("assign", tp))

    def retake(self, partition: Partition) -> None:
        self.seen.append(("retake", partition.tp))

    def drop(self, partition: Partition) -> None:
        self.seen.append(("drop", partition.tp))

    def replaced(self, topic: str, topic_id: bytes) -> None:
        self.seen.append(("replaced", topic, topic_id))

    async def truncated(self, partition: Partition, cut: int) -> None:
        if self.fails is not None:
            raise self.fails
        self.seen.append(("truncated", partition.tp, cut))


class Flow:
    """The loop over the events of one subscription, running."""

    def __init__(self, world: World) -> None:
        self.world, self.owners = world, Owners()
        self.consumer = world.consumer = world.state.consumer = EventConsumer()
        self.handing: list[list[TopicPartition]] = []
        self.hand_over_s = 0.0
        self.hand_over_fails: AckdError | None = None
        self.fetches = 0
        self.vitals = Vitals()
        self.loop = BrokerEvents(
            world.state,
            world.context,
            world.partitions,
            world.membership,
            cast("Ownership", self.owners),
            cast("LeaderEpochs", self.owners.leader_epochs),
            OwnCopyFilter(NAME, (TOPIC,), (), world.metrics),
            self._hand_over,
            self._fetched,
        )

    async def _hand_over(self, gone: Sequence[Partition]) -> None:
        self.handing.append([each.tp for each in gone])
        await asyncio.sleep(self.hand_over_s)
        if self.hand_over_fails is not None:
            raise self.hand_over_fails

    def _fetched(self) -> None:
        self.fetches += 1

    async def gives(self, *events: ConsumerEvent | BrokerError) -> None:
        """The loop takes them."""
        self.consumer.next += events
        self.consumer.more.set()
        await asyncio.sleep(0.001)


@pytest.fixture
async def flow(world: World) -> AsyncIterator[Flow]:
    flow, tasks = Flow(world), None
    tasks = Tasks("flow", flow.vitals)
    tasks.start(flow.loop.run(), "events")
    yield flow
    await tasks.stop()


def messages(partition: Partition, *offsets: int, session: int = 0, epoch: int = -1) -> Fetched:
    now = session or partition.ledger.intake.session
    return Fetched(partition.tp, now, [record(each) for each in offsets], leader_epoch=epoch)


async def test_messages_go_to_the_ledger_of_an_owned_partition(flow: Flow) -> None:
    partition = await flow.world.owns(0)
    room, deliver = flow.world.listens("room"), flow.world.listens("deliver")
    other = Fetched(TopicPartition(TOPIC, 1), 1, [record(0)])
    await flow.gives(messages(partition, 0, 1, 2), other)
    assert (partition.ledger.ready, partition.end) == (3, 3)
    assert flow.world.count("ackd_fetched_total", subscription=NAME) == 3
    assert flow.fetches == len(room) == 1
    assert deliver


async def test_a_gap_is_finished_only_within_one_session(flow: Flow) -> None:
    """R7."""
    partition = await flow.world.owns(0)
    await flow.gives(messages(partition, 0), messages(partition, 5), EndReached(TP, 77, 9))
    assert partition.ledger.intake.known_end() == 6
    await flow.gives(EndReached(TP, partition.ledger.intake.session, 9))
    assert partition.end == 9
    assert list(partition.ledger.finished.ranges(0)) == [(1, 5), (6, 9)]
    await flow.gives(messages(partition, 20, session=77))
    assert 20 not in partition.ledger.entries


async def test_the_group_assigns_and_takes_away(flow: Flow) -> None:
    two = TopicPartition(TOPIC, 1)
    await flow.gives(Assigned((TP, two)))
    assert flow.owners.seen == [("assign", TP), ("assign", two)]
    assert flow.world.state.health.assigned_once
    flow.world.partitions.assigned.update({TP: None, two: None})
    await flow.gives(Lost((TP,)))
    assert list(flow.world.partitions.assigned) == [two]


async def test_r8_what_is_assigned_anew_is_taken_anew(flow: Flow) -> None:
    """If another client may have committed while it was lost: only a take judges that."""
    await flow.world.owns(0)
    await flow.gives(Assigned((TP,)))
    assert flow.owners.seen == [("assign", TP)]
    flow.consumer.positions[TP] = Committed(7, "")
    flow.world.partitions.assign(TP)
    await flow.gives(Assigned((TP,)))
    assert flow.owners.seen == [("assign", TP)] * 2
    await flow.gives(Lost((TP,)), Assigned((TP,)))
    assert flow.owners.seen[2:] == [("drop", TP), ("assign", TP)]
    del flow.consumer.positions[TP]
    flow.consumer.away = True
    await flow.gives(Assigned((TP,)))
    assert flow.owners.seen[4:] == [("drop", TP), ("assign", TP)]


@pytest.mark.parametrize("by_group", [True, False])
async def test_r5_what_the_group_revoked_is_taken_back(flow: Flow, *, by_group: bool) -> None:
    """A group's next owner may come seconds later; where sidecars share by themselves it comes at
    once.
    """
    partition = await flow.world.owns(0)
    event = Revoked((TP,), asyncio.Event())
    if by_group:
        await flow.gives(event)
    else:
        await flow.loop.revoked(event)
    flow.world.partitions.remove(partition)
    flow.world.clock.pass_ms(BACK_MS)
    assert flow.world.membership.orphans() == ([partition.key.text()] if by_group else [])


async def test_r5_it_is_taken_back_at_once_where_all_must_join_again_first(flow: Flow) -> None:
    partition = await flow.world.owns(0)
    await flow.gives(Revoked((TP,), asyncio.Event(), rejoins=True))
    flow.world.partitions.remove(partition)
    assert flow.world.membership.orphans() == [partition.key.text()]


async def test_what_is_revoked_is_handed_over_first(flow: Flow) -> None:
    """R34: only what is owned; then the broker may give it to another member."""
    partition = await flow.world.owns(0)
    flow.world.partitions.assigned[TP] = None
    done = asyncio.Event()
    await flow.gives(Revoked((TP, TopicPartition(TOPIC, 1)), done))
    assert done.is_set()
    assert flow.handing == [[TP]]
    assert flow.owners.seen == [("drop", TP)]
    assert flow.world.partitions.assigned == {}
    assert flow.world.membership.note.handed == [partition.key.text()]


@pytest.mark.parametrize("slow", [True, False])
async def test_a_hand_over_that_fails_holds_nobody_up(flow: Flow, *, slow: bool) -> None:
    """R34: two seconds; without the last commit it is safe, as the store has the progress."""
    await flow.world.owns(0)
    if slow:
        flow.hand_over_s = 3_600
    else:
        flow.hand_over_fails = BrokerError("not a member any more")
    done, began_ms = asyncio.Event(), flow.world.clock.monotonic_ms()
    await flow.gives(Revoked((TP,), done))
    await asyncio.wait_for(done.wait(), 60)
    passed_ms = flow.world.clock.monotonic_ms() - began_ms
    assert passed_ms <= HANDOVER_MS
    assert flow.owners.seen == [("drop", TP)]


async def test_retention_took_messages_that_nobody_had(flow: Flow) -> None:
    """They are counted, and reading goes on at what is left."""
    partition = await flow.world.owns(0)
    await flow.gives(messages(partition, 0, 1))
    session = partition.ledger.intake.session
    await flow.gives(OutOfRange(TP, session, 10, 20))
    assert flow.world.count("ackd_messages_expired_by_retention_total", subscription=NAME) == 8
    assert flow.consumer.fetched_from[-1] == (TP, 10)
    assert partition.ledger.intake.session != session
    assert partition.ledger.ready == 2  # those in memory can still be delivered
    await flow.gives(OutOfRange(TP, session, 15, 20))
    assert flow.consumer.fetched_from[-1] == (TP, 10)


@pytest.mark.parametrize(
    ("event", "cut"),
    [
        (OutOfRange(TP, 1, 0, 3), 3),  # the log ends below where it was read
        (OutOfRange(TP, 1, 0, 90, cut=2), 2),  # it has grown again meanwhile
    ],
)
async def test_a_log_that_was_cut_is_no_retention(flow: Flow, event: OutOfRange, cut: int) -> None:
    """R1: other messages have these offsets now."""
    partition = await flow.world.owns(0)
    assert partition.ledger.intake.session == event.session
    await flow.gives(messages(partition, 0, 1, 2, 3, 4), event)
    assert flow.owners.seen == [("truncated", TP, cut)]
    flow.owners.seen.clear()
    flow.owners.fails = StoreError("away")
    await flow.gives(event)
    assert flow.owners.seen == [("retake", TP)]


async def test_records_of_a_new_leader_wait_for_the_check(flow: Flow) -> None:
    """R1; without the store nothing of them counts, and the partition is taken again."""
    partition = await flow.world.owns(0)
    flow.owners.leader_epochs.answer = False
    await flow.gives(messages(partition, 0, epoch=4))
    assert partition.ledger.ready == 0
    flow.owners.leader_epochs.answer = True
    await flow.gives(messages(partition, 0, epoch=5))
    assert partition.ledger.ready == 1
    flow.owners.leader_epochs.answer = StoreError("away")
    await flow.gives(messages(partition, 1, epoch=5))
    assert partition.ledger.ready == 2
    await flow.gives(messages(partition, 2, epoch=6))
    assert partition.ledger.ready == 2
    assert flow.owners.seen == [("retake", TP)]


async def test_troubles_come_and_go(flow: Flow) -> None:
    away = Condition("broker-away", "no answer", away=True)
    await flow.gives(away)
    assert flow.world.state.conditions == {"broker-away": away}
    await flow.gives(Condition("broker-away", "", cleared=True), TopicReplaced(TOPIC, bytes(16)))
    assert flow.world.state.conditions == {}
    assert flow.owners.seen == [("replaced", TOPIC, bytes(16))]
    assert not flow.vitals.failure


async def test_a_fatal_trouble_ends_the_loop(flow: Flow) -> None:
    """The runtime joins the group again then."""
    await flow.gives(Condition("fenced", "another member", fatal=True))
    assert "BrokerFatalError" in flow.vitals.failure


async def test_a_consumer_that_failed_is_asked_again_and_its_trouble_ends(flow: Flow) -> None:
    partition = await flow.world.owns(0)
    await flow.gives(BrokerError("no answer"), messages(partition, 0))
    assert flow.world.state.conditions[CONDITION].detail == "no answer"
    assert partition.ledger.ready == 0
    await asyncio.sleep(AGAIN.base_ms / 1000)
    assert partition.ledger.ready == 1
    assert CONDITION not in flow.world.state.conditions
