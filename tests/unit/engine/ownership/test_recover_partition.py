"""Taking a partition: whom its record follows, the store, the broker or an operator (R6, R8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace

import pytest

from ackd.core.commit_metadata import encode
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.record.operations import (
    Advance,
    ClaimOrigin,
    CopyRef,
    EndRepair,
    FinishOrigin,
    Gap,
    Grant,
    MoveToRetry,
    Op,
)
from ackd.core.record.protocol import CallStatus, Finish, Open, OpResult, Snapshot
from ackd.core.record.transitions import Outcome
from ackd.engine.ownership import undo
from ackd.engine.ownership.external_reset import ExternalResets
from ackd.engine.ownership.records import Records
from ackd.engine.ownership.recover import NotYetError, Recovery, Wish
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerError, StoreError
from ackd.ports import Committed
from tests.unit.engine.world import (
    LEASE_MS,
    NAME,
    PLAIN,
    TOPIC,
    TOPIC_ID,
    TestBroker,
    TestConsumer,
    World,
)

TP = TopicPartition(TOPIC, 0)
KEY = LedgerKey("cluster", NAME, TOPIC_ID, 0)
Ranges = Sequence[tuple[int, int]]


class Taking:
    """One sidecar that takes partition 0."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records = Records(world.context, world.partitions, world.membership)
        self.partition = self._partition()

    def _partition(self) -> Partition:
        world = self.world
        return Partition(TP, KEY, world.context, world.consumer, world.events.wiring(), PLAIN)

    async def takes(
        self, *, start: int = 5, assigned: bool = True, accept_external: bool = True
    ) -> bool:
        """Whether the position must be committed before anything is delivered."""
        world, self.partition = self.world, self._partition()
        resets = ExternalResets(world.state, world.context, self.records, "ackd.retry.work")
        recovery = Recovery(world.context, world.consumer, self.partition, no_jump, resets)
        wish = Wish(world.partitions.me, start, assigned, accept_external)
        return await recovery.take(wish, TP)

    async def rereads(self, partition: Partition) -> None:
        """An owner reads the record again under its term."""
        world = self.world
        context = replace(world.context, random_bits=lambda _: 8)
        resets = ExternalResets(world.state, world.context, self.records, "ackd.retry.work")
        recovery = Recovery(context, world.consumer, partition, no_jump, resets)
        await recovery.reread(Wish(world.partitions.me, 0, assigned=True, accept_external=True))

    async def does(self, op: Op) -> OpResult:
        """Who took the partition last asks this of the store."""
        return await self.asks(self.partition, op)

    async def asks(self, partition: Partition, op: Op) -> OpResult:
        """The owner of a partition asks this of the store."""
        self.world.clock.now_us += 1_000
        reply = await self.world.flusher.submit(partition.handle, [op])
        assert reply.verdict is CallStatus.OK
        return reply.results[0]

    async def record(self, watermark: int, finished: Ranges = ()) -> None:
        """What the store has of it: of an earlier owner."""
        await self.takes(start=0)
        ops: list[Op] = [Advance(watermark), *(Gap(start, end) for start, end in finished)]
        await self.world.flusher.submit(self.partition.handle, ops)

    async def stored(self) -> Snapshot:
        """The record, as it is in the store."""
        look = Open(KEY, "", rollback_epoch=0, incarnation=0, grace_ms=0, peek=True)
        return await self.world.store.open(look)

    @property
    def window(self) -> tuple[int, list[tuple[int, int]]]:
        """Of the ledger."""
        ledger = self.partition.ledger
        return ledger.watermark, list(ledger.finished.ranges(ledger.watermark))


async def no_jump() -> int:
    return 0


def commit(
    base: int, ranges: Ranges = (), *, epoch: int = 0, topic_id: bytes = TOPIC_ID
) -> Committed:
    """As ackd writes it."""
    return Committed(base, encode("cluster", topic_id, epoch, base, 1, ranges, 4_096))


@pytest.fixture
async def taking(world: World) -> Taking:
    """Of a log that has offsets 0 to 99, and has no retry topic yet."""
    world.consumer.logs[TP] = (0, 100)
    no_copies = TestConsumer()
    no_copies.known = []
    world.state.broker = TestBroker(no_copies)
    return Taking(world)


async def test_a_group_without_progress_starts_where_it_is_told(taking: Taking) -> None:
    assert await taking.takes(start=5)
    assert taking.window == (5, [])


async def test_a_group_with_a_commit_of_others_goes_on_there(taking: Taking, world: World) -> None:
    """Somebody used the group before ackd did."""
    world.consumer.positions[TP] = Committed(40, "")
    assert await taking.takes(start=5)
    assert taking.window == (40, [])


async def test_a_record_is_taken_over_as_it_is(taking: Taking) -> None:
    await taking.record(10, [(12, 15)])
    assert not await taking.takes(start=5)
    assert taking.window == (10, [(12, 15)])


async def test_a_record_that_is_gone_begins_at_the_commit_with_its_ranges(
    taking: Taking, world: World
) -> None:
    """I2 as far as it goes, and loudly."""
    world.consumer.positions[TP] = commit(20, [(22, 30)])
    assert await taking.takes(start=5)
    assert taking.window == (20, [(22, 30)])
    assert taking.partition.data_lost
    assert world.count("ackd_store_data_lost_total") == 1


@pytest.mark.parametrize("base", [10, 20])
async def test_a_store_that_went_back_gets_what_was_committed(
    taking: Taking, world: World, base: int
) -> None:
    """R10: the union, whether the watermark or only what is above it went back."""
    await taking.record(10, [(40, 45)])
    world.consumer.positions[TP] = commit(base, [(22, 30)])
    assert await taking.takes()
    assert taking.window == (base, [(22, 30), (40, 45)])
    assert world.count("ackd_possible_rollbacks_total") == 1


async def test_a_store_that_is_ahead_stays_ahead(taking: Taking, world: World) -> None:
    await taking.record(50)
    world.consumer.positions[TP] = commit(20, [(22, 30)])
    assert not await taking.takes()
    assert taking.window == (50, [])


# --- commits of others ----------------------------------------------------------------------------


async def test_an_operators_reset_wins(taking: Taking, world: World) -> None:
    """R8: what was finished above comes again; where it was can be had back."""
    await taking.record(50, [(60, 65)])
    world.consumer.positions[TP] = Committed(20, "")
    assert await taking.takes()
    assert taking.window == (20, [])
    assert taking.partition.epoch == 1
    assert await undo.kept(world.context.store, KEY) == undo.Window(50, [(60, 65)], 0)
    labels = {"subscription": NAME, "decision": "accepted"}
    assert world.count("ackd_external_commits_total", **labels) == 1


async def test_a_reset_forward_skips(taking: Taking, world: World) -> None:
    await taking.record(50)
    world.consumer.positions[TP] = Committed(80, "")
    assert await taking.takes()
    assert taking.window == (80, [])


async def test_where_resets_are_refused_ackds_position_is_committed_again(
    taking: Taking, world: World
) -> None:
    await taking.record(50)
    world.consumer.positions[TP] = Committed(20, "")
    assert await taking.takes(accept_external=False)
    assert taking.window == (50, [])
    assert taking.partition.epoch == 0
    labels = {"subscription": NAME, "decision": "refused"}
    assert world.count("ackd_external_commits_total", **labels) == 1


async def test_only_the_member_that_may_commit_judges_a_commit_of_others(
    taking: Taking, world: World
) -> None:
    """Nobody else could answer it, so it would be judged again and again."""
    await taking.record(50)
    world.consumer.positions[TP] = Committed(20, "")
    with pytest.raises(NotYetError):
        await taking.takes(assigned=False)
    assert (await taking.stored()).watermark == 50


async def test_a_sidecar_that_inherits_makes_no_record(taking: Taking) -> None:
    with pytest.raises(StoreError):
        await taking.takes(assigned=False)
    assert (await taking.stored()).verdict is CallStatus.ABSENT


async def test_metadata_that_is_copied_elsewhere_is_no_commit_of_ackds(
    taking: Taking, world: World
) -> None:
    """A tool that moves a group keeps the text: its ranges would finish other messages (R8)."""
    await taking.record(50)
    world.consumer.positions[TP] = Committed(30, commit(20, [(32, 40)]).metadata)
    assert await taking.takes()
    assert taking.window == (30, [])


async def test_a_commit_for_the_topic_of_before_means_nothing(taking: Taking, world: World) -> None:
    """R1: it was deleted and made again, and begins at 0."""
    world.consumer.positions[TP] = commit(70, [(72, 80)], topic_id=bytes(16))
    assert await taking.takes(start=0)
    assert taking.window == (0, [])
    assert not taking.partition.data_lost


async def test_after_a_reset_ranges_of_before_mean_nothing(taking: Taking, world: World) -> None:
    """The sidecar that reset the record died before it could commit that."""
    await taking.record(50)
    world.consumer.positions[TP] = Committed(20, "")
    await taking.takes()
    world.consumer.positions[TP] = commit(20, [(22, 30)], epoch=0)
    assert await taking.takes()
    assert taking.window == (20, [])


async def test_without_the_broker_nothing_is_taken(taking: Taking, world: World) -> None:
    """The commit may be an operator's reset."""
    await taking.record(50)
    world.consumer.away = True
    with pytest.raises(BrokerError):
        await taking.takes()


# --- a failover that forgets that another owner took the partition --------------------------------

AGAIN: list[Callable[[], Op]] = [lambda: MoveToRetry(0, 1), lambda: Grant.of(0, LEASE_MS, 2)]


@pytest.mark.parametrize("again", AGAIN)
async def test_i1_who_gets_its_term_back_asks_for_the_commit(
    taking: Taking, world: World, again: Callable[[], Op]
) -> None:
    """Else it moves the message again, or hands it out, and dies. Then the first copy is of an
    earlier generation, and the commit has the message as finished: nobody would deliver it.
    """
    await taking.takes(start=0)
    earlier = taking.partition
    await taking.does(Grant.of(0, LEASE_MS, 1))
    replica = deepcopy(world.data.records[KEY])
    await taking.takes(start=0)
    moved = await taking.does(MoveToRetry(0, 1))
    await taking.does(FinishOrigin(0, moved.fence, replica.rollback_epoch, Finish.SENT))
    await taking.does(Advance(1))
    world.consumer.positions[TP] = commit(1)
    copy = ClaimOrigin(0, moved.fence, replica.rollback_epoch, CopyRef(0, 0))

    world.data.records[KEY], replica.run = replica, "of the old primary"
    await taking.rereads(earlier)
    await taking.asks(earlier, EndRepair())
    world.clock.now_us += LEASE_MS * 1_000
    assert (await taking.asks(earlier, again())).outcome is Outcome.FINISHED

    await taking.takes(start=0)
    assert taking.window == (1, [])
    assert (await taking.does(copy)).outcome is Outcome.CLAIMED


async def test_i1_who_gets_its_term_back_waits_for_the_broker(taking: Taking, world: World) -> None:
    """It knows no commit without that, and repairs its record before."""
    await taking.takes(start=0)
    world.data.records[KEY].run = "of the old primary"
    world.consumer.away = True
    with pytest.raises(BrokerError):
        await taking.rereads(taking.partition)
    assert world.data.records[KEY].run != "of the old primary"
