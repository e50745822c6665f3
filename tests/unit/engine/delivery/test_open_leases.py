"""How many leases of one consumer are open, whoever ends them and whoever owns the partition."""

import asyncio

import pytest

from ackd.api.messages import LeaseView, SettleItem, SettleResult, SettleVerb, Status
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import Verb
from ackd.engine.delivery.handed_leases import HandedLeases
from ackd.engine.delivery.open_leases import LOOK_MS, LOOKS_MAX, OpenLeases
from ackd.engine.partition.partition import Partition
from ackd.engine.settlement.settle import Settler
from ackd.errors import StoreError
from tests.unit.engine.world import LEASE_MS, NAME, World


class Looks(Settler):
    """The real look-up, counted. `away`: the store does not answer."""

    seen: list[str]
    away: bool

    async def look(self, text: str) -> LeaseView:
        self.seen.append(text)
        if self.away:
            raise StoreError
        return await super().look(text)


@pytest.fixture
def looks(world: World) -> Looks:
    settler = Looks({NAME: world.settles}, world.context)
    settler.seen, settler.away = [], False
    return settler


@pytest.fixture
def handed() -> HandedLeases:
    return HandedLeases()


@pytest.fixture
def leases(world: World, looks: Looks, handed: HandedLeases) -> OpenLeases:
    return OpenLeases(NAME, world.context, {NAME: world.partitions}, looks.look, handed)


async def ends(world: World, partition: Partition, verb: Verb, lease: str) -> None:
    """Settle a lease at the store, as its owner hears of it."""
    token = world.context.keys.open(lease)
    op = Settle(verb, token.offset, token.fence, token.rollback_epoch, token.attempt, 5_000)
    await world.flusher.submit(partition.handle, [op])


@pytest.mark.parametrize(
    ("verb", "left"), [(Verb.ACK, 1), (Verb.RETRY, 1), (Verb.RELEASE, 1), (Verb.EXTEND, 2)]
)
async def test_a_lease_counts_until_something_ends_it(
    world: World, leases: OpenLeases, verb: Verb, left: int
) -> None:
    partition = await world.owns(0, [0, 1])
    got = await world.leases(partition, 2)
    leases.add(got)
    assert leases.count() == 2
    await ends(world, partition, verb, got[0].lease)
    assert leases.count() == left
    assert got[1].lease in leases.leases()


async def test_a_lease_that_ran_out_and_was_granted_again_is_another_one(
    world: World, leases: OpenLeases
) -> None:
    partition = await world.owns(0, [0])
    leases.add(await world.leases(partition))
    world.clock.pass_ms(LEASE_MS + 1)
    partition.ledger.tick(world.clock.monotonic_ms())
    leases.add(await world.leases(partition))
    assert leases.count() == 1


async def test_while_the_record_is_read_again_nothing_is_known_to_be_over(
    world: World, leases: OpenLeases
) -> None:
    partition = await world.owns(0, [0])
    got = await world.leases(partition)
    leases.add(got)
    await ends(world, partition, Verb.ACK, got[0].lease)
    partition.reload()
    assert leases.count() == 1


async def test_whoever_waits_is_woken_by_the_end_of_a_lease(
    world: World, leases: OpenLeases
) -> None:
    partition = await world.owns(0, [0])
    got = await world.leases(partition)
    leases.add(got)
    await leases.wait(60)  # the grant was such an event
    began_ms = world.clock.monotonic_ms()
    async with asyncio.TaskGroup() as group:
        group.create_task(leases.wait(60))
        await asyncio.sleep(0.2)
        await ends(world, partition, Verb.ACK, got[0].lease)
    assert world.clock.monotonic_ms() - began_ms == 200
    await leases.wait(0.05)
    assert world.clock.monotonic_ms() - began_ms == 250


async def test_leases_of_a_partition_that_went_away_are_looked_up_once_a_second(
    world: World, leases: OpenLeases, looks: Looks
) -> None:
    partition = await world.owns(0, [0, 1])
    got = await world.leases(partition, 2)
    leases.add(got)
    await leases.wait(60)
    assert looks.seen == []  # the ledger knows
    world.partitions.remove(partition)
    await ends(world, partition, Verb.ACK, got[0].lease)
    assert leases.count() == 2
    for _ in range(2):
        await leases.wait(LOOK_MS / 2_000)
    assert leases.leases() == [got[1].lease]
    assert sorted(looks.seen) == sorted(each.lease for each in got)
    await leases.wait(60)
    assert len(looks.seen) == 3


async def test_a_settle_that_is_served_here_ends_a_lease_of_another_owner_at_once(
    world: World, leases: OpenLeases, looks: Looks, handed: HandedLeases
) -> None:
    partition = await world.owns(0, [0, 1])
    got = await world.leases(partition, 2)
    leases.add(got)
    await leases.wait(60)  # the grant was such an event
    world.partitions.remove(partition)
    began_ms = world.clock.monotonic_ms()
    items = [SettleItem(got[0].lease, SettleVerb.ACK), SettleItem(got[1].lease, SettleVerb.EXTEND)]
    results = [SettleResult(Status.ACKED)]
    results += [SettleResult(Status.EXTENDED)]
    async with asyncio.TaskGroup() as group:
        group.create_task(leases.wait(60))
        await asyncio.sleep(0.2)
        handed.settled(items, results)
    assert world.clock.monotonic_ms() - began_ms == 200
    assert leases.leases() == [got[1].lease]
    assert got[0].lease not in looks.seen
    assert list(handed.watched) == [got[1].lease]
    leases.close()
    assert not handed.watched


async def test_i7_without_an_answer_a_lease_stays_open(
    world: World, leases: OpenLeases, looks: Looks
) -> None:
    partition = await world.owns(0, [0])
    leases.add(await world.leases(partition))
    world.partitions.remove(partition)
    looks.away = True
    await leases.wait(60)
    assert (len(looks.seen), leases.count()) == (1, 1)
    looks.away = False
    world.clock.pass_ms(LEASE_MS + 1)
    await leases.wait(60)
    assert leases.count() == 0


async def test_i8_a_round_looks_some_up_and_the_next_one_the_others(
    world: World, leases: OpenLeases, looks: Looks
) -> None:
    partition = await world.owns(0, range(LOOKS_MAX + 50))
    leases.add(await world.leases(partition, LOOKS_MAX + 50))
    world.partitions.remove(partition)
    await leases.wait(60)
    assert len(looks.seen) == LOOKS_MAX
    await leases.wait(60)
    assert len(set(looks.seen)) == LOOKS_MAX + 50


async def test_closed_it_is_told_nothing_more(world: World, leases: OpenLeases) -> None:
    leases.close()
    world.context.lease_events.tell(NAME)
    began_ms = world.clock.monotonic_ms()
    await leases.wait(0.5)
    assert world.clock.monotonic_ms() - began_ms == 500
