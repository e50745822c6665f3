"""One timer for all that falls due: it wakes with the next deadline, and scans nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from ackd.core.ledger.entry import EntryStatus
from ackd.core.ledger.send_back import Rules
from ackd.core.record.transitions import Verb
from ackd.engine.base.tasks import Tasks
from ackd.engine.delivery.deadline_timers import (
    COPIES_MAX,
    IDLE_MS,
    JOURNAL_MS,
    UPKEEP_MS,
    DeadlineTimers,
)
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.window_pressure import WindowPressure
from ackd.engine.partition.partition import Partition, Policy
from ackd.ports import Member
from tests.unit.engine.copies import copies
from tests.unit.engine.world import LEASE_MS, NAME, World


@dataclass
class Scene:
    """Timers that run."""

    world: World
    timers: DeadlineTimers
    dispatcher: Dispatcher
    turns: list[str]
    expired: list[Counter[str]]
    copying: list[int]

    async def owns(self, *offsets: int, policy: Policy | None = None) -> Partition:
        """A partition whose deadlines the timers hear of."""
        wiring = replace(self.world.events.wiring(), due=self.timers.due)
        chosen = policy or Policy(None, 0, retry_copies=False)
        partition = await self.world.owns(0, offsets, wiring=wiring, policy=chosen)
        self.timers.wake_if_idle()
        return partition


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    state, context, partitions = world.state, world.context, world.partitions
    dispatcher = world.dispatcher()
    bodies, claims = copies(world)
    pressure = WindowPressure(state, context, partitions, lambda: False, lambda: False)
    expired: list[Counter[str]] = []
    copying = [0]
    timers = DeadlineTimers(
        state,
        context,
        partitions,
        world.membership,
        dispatcher,
        pressure,
        lambda _partition, _found, counts: expired.append(counts),
        bodies,
        claims,
        lambda: copying[0],
    )
    tasks = Tasks("timers")
    tasks.start(timers.run(), "run")
    yield Scene(world, timers, dispatcher, world.listens("room"), expired, copying)
    await tasks.stop()


def status(partition: Partition, offset: int = 0) -> EntryStatus:
    entry = partition.ledger.entry(offset)
    assert entry is not None
    return entry.status


async def test_i4_a_lease_ends_with_its_deadline_not_before(scene: Scene) -> None:
    partition = await scene.owns(0)
    await scene.world.leases(partition)
    await asyncio.sleep((LEASE_MS - 1) / 1000)
    assert status(partition) is EntryStatus.LEASED
    await asyncio.sleep(0.002)
    assert status(partition) is EntryStatus.READY
    assert scene.world.count("ackd_lease_expiries_total", subscription=NAME) == 1
    lateness = scene.world.count("ackd_deadline_lateness_seconds_sum", subscription=NAME)
    assert lateness <= 0.001


async def test_an_earlier_deadline_wakes_it_earlier(scene: Scene) -> None:
    partition = await scene.owns(0, 1)
    await scene.world.leases(partition, 1)
    await asyncio.sleep(0.012)
    await scene.world.leases(partition, 1, lease_ms=7)
    await asyncio.sleep(0.008)
    assert [status(partition, each) for each in (0, 1)] == [EntryStatus.LEASED, EntryStatus.READY]


async def test_expired_leases_are_told_by_the_sidecar_of_their_holders(scene: Scene) -> None:
    """Each application's own failures open the circuit breaker beside it."""
    partition = await scene.owns(0, 1, 2)
    await scene.world.leases(partition, 3, lease_ms=50)
    for offset, holder in enumerate(("packer", "via pod-2: packer", "via pod-2: ")):
        partition.ledger.grants.handed_to(offset, holder)
    await asyncio.sleep(0.1)
    assert scene.expired == [Counter({"": 1, "pod-2": 2})]


async def test_r23_while_the_store_is_away_nothing_ends(scene: Scene) -> None:
    partition = await scene.owns(0)
    await scene.world.leases(partition)
    scene.world.state.health.store_ok = False
    await asyncio.sleep(2 * LEASE_MS / 1000)
    assert status(partition) is EntryStatus.LEASED
    scene.world.state.health.store_ok = True
    await asyncio.sleep(2 * UPKEEP_MS / 1000)
    assert status(partition) is EntryStatus.READY


async def test_a_partition_whose_record_is_read_again_is_left_alone(scene: Scene) -> None:
    partition = await scene.owns(0)
    await scene.world.leases(partition, lease_ms=50)
    partition.reload()
    await asyncio.sleep(0.2)
    assert status(partition) is EntryStatus.LEASED


async def test_the_watermark_goes_to_the_store_without_being_asked_for(scene: Scene) -> None:
    partition = await scene.owns(0, 1)
    (lease, _) = await scene.world.leases(partition, 2)
    token = scene.world.context.keys.open(lease.lease)
    partition.ledger.acked([token.offset])
    assert partition.has_upkeep
    await asyncio.sleep(2 * UPKEEP_MS / 1000)
    assert (partition.ledger.confirmed, partition.has_upkeep) == (1, False)


async def test_i5_what_is_stuck_is_moved(scene: Scene) -> None:
    rules = Policy(Rules(5_000, 5_000, 1_000), 0, retry_copies=False)
    partition = await scene.owns(0, policy=rules)
    await scene.world.leases(partition)
    await asyncio.sleep(4)
    assert status(partition) is EntryStatus.LEASED
    await asyncio.sleep(3)
    assert status(partition) is EntryStatus.MOVING


async def test_i4_nothing_joins_copies_that_wait_for_their_turn(scene: Scene) -> None:
    """A message in that queue could not be delivered when its lease ends."""
    rules = Policy(Rules(5_000, 5_000, 1_000), 0, retry_copies=False)
    partition = await scene.owns(0, policy=rules)
    await scene.world.leases(partition, lease_ms=60_000)
    scene.copying[0] = COPIES_MAX
    await asyncio.sleep(8)
    assert status(partition) is EntryStatus.LEASED
    scene.copying[0] -= 1
    await asyncio.sleep(1.1 * UPKEEP_MS / 1000)
    assert status(partition) is EntryStatus.MOVING


@pytest.mark.parametrize("others", [0, 1])
async def test_r16_settles_elsewhere_are_asked_for_only_if_there_are_others(
    scene: Scene, others: int
) -> None:
    other = Member("pod-2", 1, 0, "", (), "")
    scene.world.membership.view.alive = [other] * others
    partition = await scene.owns(0)
    await scene.world.leases(partition)
    await asyncio.sleep(0.01)
    asked = len(scene.world.store.asked)
    await asyncio.sleep(10 * JOURNAL_MS / 1000)
    assert len(scene.world.store.asked) - asked == 10 * others
    assert not any(
        op.verb is Verb.GRANT for call in scene.world.store.asked[asked:] for op in call.ops
    )


async def test_r16_calls_that_bring_the_journal_anyway_take_the_place_of_asking(
    scene: Scene,
) -> None:
    scene.world.membership.view.alive = [Member("pod-2", 1, 0, "", (), "")]
    partition = await scene.owns(*range(40))
    asked: list[int] = []
    for _ in range(20):
        await scene.world.leases(partition)
        asked.append(len(scene.world.store.asked))
        await asyncio.sleep(JOURNAL_MS / 5 / 1000)
    assert [after - before for before, after in pairwise(asked)] == [1] * 19
    before = len(scene.world.store.asked)
    await asyncio.sleep(1.1 * JOURNAL_MS / 1000)
    assert len(scene.world.store.asked) - before == 1


async def test_an_idle_sidecar_sleeps_and_can_be_stirred(scene: Scene) -> None:
    await scene.owns()
    await asyncio.sleep(0.5)
    before = len(scene.turns)
    await asyncio.sleep(3 * IDLE_MS / 1000)
    assert len(scene.turns) - before == 3
    scene.timers.wake_if_idle()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(scene.turns) - before == 4


async def test_a_flush_waits_until_the_store_has_it(scene: Scene) -> None:
    partition = await scene.owns(0)
    partition.ledger.acked([0])
    await scene.timers.flush([partition])
    assert partition.ledger.confirmed == partition.ledger.watermark == 1
