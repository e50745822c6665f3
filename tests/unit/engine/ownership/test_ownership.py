"""Partitions come and go: taken, taken later, lost to others, cut, made again, read again (R1, R5,
R10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast
from unittest.mock import AsyncMock, Mock

import pytest

from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.record.operations import Gap, ReplayAck, ReplayFinished
from ackd.core.record.protocol import Open, Snapshot
from ackd.core.record.transitions import State
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.heartbeat import Heartbeat, LiveValue
from ackd.engine.cluster.members import HEARTBEAT_MS, SILENT_MS
from ackd.engine.cluster.membership import BACK_MS
from ackd.engine.ownership.ownership import AGAIN, RETAKE_MS
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError, StoreError, StoreUnknownError
from ackd.ports import Committed, TopicInfo
from tests.unit.engine.ownerships import ownership_of
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, TestBroker, TestConsumer, World

TP = TopicPartition(TOPIC, 0)
KEY = LedgerKey("cluster", NAME, TOPIC_ID, 0)
NEW_ID = bytes(range(32, 48))


class Owning:
    """One sidecar's ownership. `left` and `dropped`: partitions whose messages others continue, and
    all that went; `taken`: those that came.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.left: list[Partition] = []
        self.dropped: list[Partition] = []
        self.taken: list[Partition] = []
        self.ready: list[Partition] = []
        self.tasks = Tasks("owning")
        self.ownership = ownership_of(
            world,
            self._commit_first,
            ready=self.ready.append,
            on_taken=(lambda partition, _: self.taken.append(partition),),
            on_left=(self.left.append,),
            on_dropped=(self.dropped.append,),
        )

    async def _commit_first(self, partition: Partition) -> None:
        """Positions are of no interest here."""

    def owned(self) -> Partition | None:
        return self.world.partitions.owned.get(TP)

    async def assigned(self) -> Partition:
        """The group assigns the partition, and it is taken."""
        self.ownership.assign(TP)
        await settled()
        partition = self.owned()
        assert partition is not None
        return partition

    async def left_behind(self) -> None:
        """There is a record, and nobody has the partition."""
        self.ownership.drop(await self.assigned())
        self.world.partitions.unassign(TP)

    async def other_takes(self) -> Snapshot:
        """Another sidecar takes the record over."""
        return await self.world.store.open(
            Open(KEY, "pod-2/1", rollback_epoch=9, incarnation=9, grace_ms=0)
        )

    async def stored(self) -> Snapshot:
        look = Open(KEY, "", rollback_epoch=0, incarnation=0, grace_ms=0, peek=True)
        return await self.world.store.open(look)

    async def repeated(self) -> list[int]:
        """The finished offsets that this sidecar repeats of what it let go, after a failover."""
        self.world.store.runs_as = "run-2"
        before = len(self.world.store.asked)
        await self.world.context.replay_log.replay_released(NAME)
        ops = [op for call in self.world.store.asked[before:] for op in call.ops]
        return [op.offset for op in ops if isinstance(op, ReplayFinished | ReplayAck)]

    async def beating(self) -> None:
        """Its heartbeats run."""
        self.world.partitions.registered(1)
        world = self.world
        beat = Heartbeat(
            world.state,
            world.context,
            world.membership,
            world.partitions,
            self.ownership,
            cast("LiveValue", Mock(repair=AsyncMock())),
            lambda _: None,
        )
        world.state.signals.beat.connect(beat.beat_soon)
        self.tasks.start(beat.run(), "beat")

    def stops(self) -> int:
        """How often the consumer was told to fetch the partition no more."""
        return self.world.consumer.told.count(("stop", TP))


async def settled() -> None:
    """What was started has run."""
    await asyncio.sleep(0.01)


@pytest.fixture
async def owning(world: World) -> AsyncIterator[Owning]:
    """A sidecar that everybody knows of, beside a log with offsets 0 to 99."""
    clock = world.clock
    world.membership.registered(1, ())
    world.membership.confirmed_at(clock.monotonic_ms())
    world.membership.answered_by("run-1", clock.wall_ms(), clock.monotonic_ms())
    world.membership.replayed("run-1")
    world.consumer.logs[TP] = (0, 100)
    world.state.configured = replace(world.state.configured, start="earliest")
    owning = Owning(world)
    yield owning
    await owning.tasks.stop()
    await owning.ownership.stop()


# --- taking now, and later


async def test_a_partition_that_is_revoked_before_it_was_taken_is_not_taken(owning: Owning) -> None:
    """Two sidecars that start at once: the group gives one of them everything for a moment."""
    await owning.left_behind()
    owning.ownership.assign(TP)
    owning.world.partitions.unassign(TP)
    await settled()
    assert owning.owned() is None


async def test_a_partition_of_a_dead_one_that_is_assigned_and_revoked_is_not_taken(
    owning: Owning,
) -> None:
    await owning.left_behind()
    owning.ownership.take(TP)
    owning.ownership.assign(TP)
    owning.world.partitions.unassign(TP)
    await settled()
    assert owning.owned() is None


@pytest.mark.parametrize("lost", [True, False])
async def test_r8_what_is_assigned_during_a_take_is_judged(owning: Owning, *, lost: bool) -> None:
    """Between its look at the commit and the store's answer the sidecar stood still, and another
    client moved the group.
    """
    await owning.left_behind()
    world, opens = owning.world, owning.world.store.open
    without_copies = TestConsumer()
    without_copies.known = []
    world.state.broker = TestBroker(without_copies)

    async def open_late(request: Open) -> Snapshot:
        world.store.open = opens  # type: ignore[method-assign]
        world.consumer.positions[TP] = Committed(7, "")
        world.partitions.unassign(TP)
        owning.ownership.assign(TP)
        return await opens(request)

    world.store.open = open_late  # type: ignore[method-assign]
    if lost:
        owning.ownership.assign(TP)
    else:
        owning.ownership.take(TP)
    await settled()
    assert owning.owned() is not None
    assert (await owning.stored()).watermark == 7


async def test_an_assigned_partition_is_taken_once(owning: Owning) -> None:
    owning.ownership.assign(TP)
    owning.ownership.assign(TP)  # while it is being taken
    await settled()
    partition = owning.owned()
    assert partition is not None
    owning.ownership.assign(TP)
    await settled()
    assert owning.owned() is partition
    assert owning.taken == [partition]
    assert owning.world.count("ackd_takeovers_total", subscription=NAME) == 1
    assert (await owning.stored()).term == partition.handle.term


async def test_later_is_after_a_pause_and_once(owning: Owning) -> None:
    owning.world.partitions.assign(TP)
    owning.ownership.later(TP)
    owning.world.clock.pass_ms(RETAKE_MS - 1)
    owning.ownership.retry_takes()
    await settled()
    assert owning.owned() is None
    owning.world.clock.pass_ms(1)
    owning.ownership.retry_takes()
    await settled()
    assert owning.taken == [owning.owned()]
    owning.ownership.drop(owning.taken[0])
    owning.world.clock.pass_ms(RETAKE_MS)
    owning.ownership.retry_takes()
    await settled()
    assert owning.owned() is None


async def test_what_the_group_took_away_meanwhile_is_not_taken_later(owning: Owning) -> None:
    owning.world.partitions.assign(TP)
    owning.ownership.later(TP)
    owning.world.partitions.unassign(TP)
    owning.world.clock.pass_ms(RETAKE_MS)
    owning.ownership.retry_takes()
    owning.world.partitions.assign(TP)
    owning.ownership.retry_takes()
    await settled()
    assert owning.taken == []


async def test_an_assignment_ends_the_wait(owning: Owning) -> None:
    owning.ownership.later(TP)
    partition = await owning.assigned()
    owning.ownership.drop(partition)
    owning.world.clock.pass_ms(RETAKE_MS)
    owning.ownership.retry_takes()
    await settled()
    assert owning.taken == [partition]


async def test_a_take_is_tried_until_the_store_is_there(owning: Owning) -> None:
    owning.world.store.away = True
    owning.world.consumer.away = True
    owning.ownership.assign(TP)
    await settled()
    assert owning.owned() is None
    assert owning.world.state.health.detail.startswith("opening orders/0: ")
    owning.world.store.away = owning.world.consumer.away = False
    await asyncio.sleep(AGAIN.base_ms / 1000)
    assert owning.owned() is not None
    assert owning.world.state.health.detail == ""


# --- put by during an operation


async def test_what_was_put_by_is_taken_back(owning: Owning) -> None:
    partition = await owning.assigned()
    owning.ownership.hold(held=True)
    assert owning.owned() is None
    assert list(owning.world.partitions.set_aside.values()) == [KEY.text()]
    owning.ownership.hold(held=False)
    assert owning.world.membership.orphans() == [KEY.text()]  # until it is taken
    await settled()
    assert owning.taken == [partition, owning.owned()]


async def test_what_the_group_took_away_during_an_operation_is_not_taken_back(
    owning: Owning,
) -> None:
    """The group gave it to another sidecar, which takes it when the operation is over."""
    partition = await owning.assigned()
    owning.ownership.hold(held=True)
    owning.world.partitions.unassign(TP)
    owning.ownership.hold(held=False)
    assert owning.world.membership.orphans() == []
    await settled()
    assert owning.taken == [partition]


@pytest.mark.parametrize("later", [False, True], ids=["assigned", "assigned-meanwhile"])
async def test_what_was_being_taken_and_is_revoked_during_an_operation_is_not_taken(
    owning: Owning, *, later: bool
) -> None:
    await owning.left_behind()
    before = list(owning.taken)
    if not later:
        owning.ownership.assign(TP)
    owning.ownership.hold(held=True)
    if later:
        owning.ownership.take(TP)  # a dead sidecar's, at first
        owning.ownership.assign(TP)
    await settled()
    owning.world.partitions.unassign(TP)
    owning.ownership.hold(held=False)
    await settled()
    assert owning.taken == before


async def test_a_partition_of_a_dead_one_is_taken_when_the_operation_is_over(
    owning: Owning,
) -> None:
    await owning.left_behind()
    owning.ownership.hold(held=True)
    owning.ownership.take(TP)
    owning.ownership.hold(held=False)
    await settled()
    assert owning.owned() is not None


# --- lost to another sidecar


async def test_r5_a_fenced_owner_lets_go_and_tries_again_as_a_member(owning: Owning) -> None:
    partition = await owning.assigned()
    await owning.other_takes()
    partition.tell(Gap(5, 6))
    await settled()
    assert owning.owned() is None
    assert owning.left == owning.dropped == [partition]
    assert owning.stops() == 1
    owning.ownership.retry_takes()
    await settled()
    assert owning.taken == [partition]  # not at once: two would fence each other in turn
    owning.world.clock.pass_ms(RETAKE_MS)
    owning.ownership.retry_takes()
    await settled()
    assert owning.taken == [partition, owning.owned()]


async def test_r5_a_fenced_owner_leaves_a_partition_of_others_to_them(owning: Owning) -> None:
    partition = await owning.assigned()
    owning.world.partitions.unassign(TP)
    await owning.other_takes()
    partition.tell(Gap(5, 6))
    await settled()
    owning.world.clock.pass_ms(RETAKE_MS)
    owning.world.partitions.assign(TP)
    owning.ownership.retry_takes()
    await settled()
    assert owning.dropped == owning.taken == [partition]


async def test_r5_what_was_taken_by_one_that_died_at_once_is_taken_again(owning: Owning) -> None:
    """No heartbeat of that one names the partition, and the group has it as a member for seconds.
    The one from which it took it is no member for the partition.
    """
    world = owning.world
    partition = await owning.assigned()
    world.partitions.unassign(TP)
    await owning.beating()
    await asyncio.sleep(1)
    await owning.other_takes()
    partition.tell(Gap(5, 6))
    since_ms = world.clock.monotonic_ms()
    await settled()
    assert owning.owned() is None
    assert KEY.text() in world.membership.note.handed
    while owning.owned() is None:
        assert world.clock.monotonic_ms() - since_ms <= SILENT_MS + HEARTBEAT_MS
        await asyncio.sleep(0.01)
    await asyncio.sleep(HEARTBEAT_MS / 1000)
    assert world.membership.note.handed == []


@pytest.mark.parametrize("by", ["store", "group"])
async def test_r5_what_is_taken_and_not_opened_is_taken_again(
    owning: Owning, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Meanwhile the heartbeat says that this sidecar has it, and its owner before forgets it."""
    await owning.left_behind()
    world, said = owning.world, list[list[str]]()

    async def opened(_: Partition) -> None:
        said.append(world.partitions.claimed())
        if len(said) == 1:
            if by == "store":
                raise StoreError("the store is away")
            world.partitions.unassign(TP)

    monkeypatch.setattr(owning.ownership.leader_epochs, "opened", opened)
    if by == "group":
        owning.ownership.assign(TP)
    else:
        owning.ownership.take(TP)
    await settled()
    assert said == [[KEY.text()]]
    assert (world.partitions.claimed(), owning.owned()) == ([], None)
    assert world.membership.note.handed == [KEY.text()]
    await owning.beating()
    await asyncio.sleep((SILENT_MS if by == "store" else BACK_MS) / 1000 + 0.1)
    assert owning.owned() is not None


async def test_r5_who_must_commit_first_says_nothing_before(owning: Owning) -> None:
    """The broker may be slow to take a commit, and whom the group knows nothing of need not ask."""
    said: list[list[str]] = []

    async def commit_first(_: Partition) -> None:
        said.append(owning.world.partitions.claimed())

    owning.ownership._commit_first = commit_first
    await owning.assigned()  # the record is new
    assert said == [[]]


async def test_what_cannot_be_read_on_is_taken_again(owning: Owning) -> None:
    partition = await owning.assigned()
    owning.ownership.retake(partition)
    assert owning.world.membership.orphans() == []
    owning.world.clock.pass_ms(RETAKE_MS)
    owning.ownership.retry_takes()
    await settled()
    again = owning.owned()
    assert again is not None
    owning.world.partitions.unassign(TP)
    owning.ownership.retake(again)
    assert (owning.owned(), owning.world.membership.orphans()) == (None, [KEY.text()])


async def test_what_a_fenced_owner_knew_is_repeated_after_a_rollback(owning: Owning) -> None:
    """R10: the record may go back to before its last acks, under any owner."""
    partition = await owning.assigned()
    partition.ledger.finished.add_range(3, 7)
    await owning.other_takes()
    partition.tell(Gap(50, 51))
    await settled()
    assert await owning.repeated() == [3, 4, 5, 6]


# --- another topic of the same name, another log


async def test_r1_a_topic_made_again_has_other_partitions(owning: Owning) -> None:
    partition = await owning.assigned()
    partition.ledger.finished.add_range(0, 50)
    owning.world.consumer.known = [TopicInfo(TOPIC, NEW_ID, 4)]
    owning.ownership.replaced(TOPIC, NEW_ID)
    await settled()
    owned = owning.owned()
    assert owned is not None
    assert owned.key == KEY._replace(topic_id=NEW_ID)
    assert owned.ledger.watermark == 0
    assert owning.dropped == [partition]
    assert owning.left == []  # no sidecar continues its messages
    assert await owning.repeated() == []


async def test_r1_the_partitions_of_the_same_topic_are_fetched_again(owning: Owning) -> None:
    partition = await owning.assigned()
    World.fetches(partition, [0, 1])
    fetches = len(owning.world.consumer.fetched_from)
    owning.ownership.replaced("others", NEW_ID)
    await settled()
    assert len(owning.world.consumer.fetched_from) == fetches
    owning.ownership.replaced(TOPIC, TOPIC_ID)
    await settled()
    assert owning.owned() is partition
    assert owning.world.consumer.fetched_from[fetches:] == [(TP, 0)]
    assert owning.dropped == []


async def test_a_topic_that_is_gone_takes_its_partitions_along(owning: Owning) -> None:
    partition = await owning.assigned()
    owning.world.consumer.known = []
    owning.ownership.replaced(TOPIC, None)
    await settled()
    assert owning.owned() is None
    assert owning.dropped == [partition]


async def test_r1_a_log_that_was_cut_keeps_what_is_below(
    owning: Owning, caplog: pytest.LogCaptureFixture
) -> None:
    partition = await owning.assigned()
    World.fetches(partition, range(20))
    await owning.world.leases(partition, 1)
    for start, end in ((2, 4), (8, 15)):
        partition.tell(Gap(start, end))
        partition.ledger.finished.add_range(start, end)
    await settled()
    with caplog.at_level(logging.ERROR):
        await owning.ownership.truncated(partition, 10)
    await settled()
    assert "truncated at offset 10" in caplog.text
    assert owning.dropped == [partition]
    assert owning.left == []
    again = owning.owned()
    assert again is not None
    assert again is not partition
    assert again.ledger.watermark == 0
    assert list(again.ledger.finished.ranges(0)) == [(2, 4), (8, 10)]
    assert [(slot.offset, slot.state) for slot in (await owning.stored()).slots] == [
        (0, State.LEASED)
    ]
    assert await owning.repeated() == []  # what it knew of the old messages


async def test_r1_a_cut_below_the_watermark_moves_it_back(owning: Owning) -> None:
    owning.world.consumer.logs[TP] = (30, 100)
    partition = await owning.assigned()
    assert partition.ledger.watermark == 30
    await owning.ownership.truncated(partition, 10)
    await settled()
    owned = owning.owned()
    assert owned is not None
    assert owned.ledger.watermark == 10
    assert list(owned.ledger.finished.ranges(10)) == []


async def test_r1_a_cut_of_a_topic_made_again_is_that(owning: Owning) -> None:
    """The old record is left as it is: its offsets are of another topic."""
    partition = await owning.assigned()
    before = await owning.stored()
    owning.world.consumer.known = [TopicInfo(TOPIC, NEW_ID, 4)]
    await owning.ownership.truncated(partition, 10)
    await settled()
    owned = owning.owned()
    assert owned is not None
    assert owned.key.topic_id == NEW_ID
    assert (await owning.stored()).version == before.version


async def test_a_cut_that_the_store_did_not_get_is_told(owning: Owning) -> None:
    partition = await owning.assigned()
    owning.world.store.away = True
    with pytest.raises(StoreError):
        await owning.ownership.truncated(partition, 10)
    owning.world.store.away, owning.world.consumer.away = False, True
    with pytest.raises(BrokerError):
        await owning.ownership.truncated(partition, 10)
    assert owning.owned() is partition


# --- reading again


async def test_r12_a_record_is_read_again_until_the_store_tells(owning: Owning) -> None:
    partition = await owning.assigned()
    World.fetches(partition, range(3))
    deliver = owning.world.listens("deliver")
    owning.world.store.away = owning.world.store.lost = True
    with pytest.raises(StoreUnknownError):
        await owning.world.leases(partition)
    await settled()
    assert owning.world.state.health.detail.startswith("orders/0: ")
    assert not deliver
    owning.world.store.away = owning.world.store.lost = False
    await asyncio.sleep(AGAIN.base_ms / 1000)
    assert not partition.needs_reread
    assert owning.owned() is partition
    assert partition.ledger.ready == 3  # the store granted nothing
    assert deliver


async def test_r5_who_reads_again_and_finds_another_owner_lets_go(owning: Owning) -> None:
    partition = await owning.assigned()
    other = await owning.other_takes()
    partition.reload()
    await settled()
    assert owning.owned() is None
    assert owning.left == [partition]
    assert partition.closed
    assert (await owning.stored()).term == other.term


async def test_a_partition_that_goes_is_not_read_again(owning: Owning) -> None:
    partition = await owning.assigned()
    owning.world.store.away = True
    partition.reload()
    await settled()
    owning.ownership.drop(partition)
    owning.world.store.away = False
    reads = owning.world.data.records[KEY].version
    await asyncio.sleep(2 * AGAIN.base_ms / 1000)
    assert owning.world.data.records[KEY].version == reads
    assert owning.owned() is None
