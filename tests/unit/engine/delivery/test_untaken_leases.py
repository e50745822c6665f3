"""R21: a lease that no caller holds goes back, and counts no attempt."""

import asyncio
from collections.abc import Sequence

import pytest

from ackd.core.ledger.entry import EntryStatus
from ackd.core.record.protocol import Open
from ackd.engine.delivery.rate_limit import RateLimit
from ackd.engine.delivery.untaken_leases import UntakenLeases
from ackd.engine.delivery.waiters import WaiterQueue
from ackd.engine.delivery.waits_elsewhere import WaitsElsewhere
from ackd.engine.partition.partition import Partition
from ackd.store.flusher import LedgerHandle
from tests.unit.engine.world import World


class Passed(WaitsElsewhere):
    """Remembers which leases were passed on to other sidecars."""

    def __init__(self, world: World) -> None:
        rate = RateLimit(world.state, world.context, world.membership, lambda: None)
        super().__init__(world.state, world.breaker, WaiterQueue(), rate)
        self.passed: list[str] = []

    def give_back(self, leases: Sequence[str]) -> None:
        self.passed += leases


@pytest.fixture
def elsewhere(world: World) -> Passed:
    return Passed(world)


@pytest.fixture
def untaken(world: World, elsewhere: Passed) -> UntakenLeases:
    return UntakenLeases(world.state, world.context, world.partitions, elsewhere)


def statuses(partition: Partition, count: int) -> list[EntryStatus | None]:
    entries = [partition.ledger.entry(offset) for offset in range(count)]
    return [None if each is None else each.status for each in entries]


async def test_r21_they_are_ready_again_and_no_attempt_is_used(
    world: World, untaken: UntakenLeases, elsewhere: Passed
) -> None:
    partition = await world.owns(0, [0, 1, 2])
    untaken.give_back([each.lease for each in (await world.leases(partition, 3))[:2]])
    await asyncio.sleep(0.1)
    ready, leased = EntryStatus.READY, EntryStatus.LEASED
    assert statuses(partition, 3) == [ready, ready, leased]
    again = await world.leases(partition, 2)
    assert [each.attempt for each in again] == [1, 1]
    assert elsewhere.passed == []


async def test_r21_those_of_partitions_of_others_are_passed_on(
    world: World, untaken: UntakenLeases, elsewhere: Passed
) -> None:
    kept, given = await world.owns(0, [0]), await world.owns(1, [0])
    (here,), (there,) = await world.leases(kept), await world.leases(given)
    world.partitions.remove(given)
    untaken.give_back([there.lease, here.lease])
    await asyncio.sleep(0.1)
    assert elsewhere.passed == [there.lease]
    assert statuses(kept, 1) == [EntryStatus.READY]


async def test_r21_those_of_a_partition_that_another_sidecar_took_are_passed_on(
    world: World, untaken: UntakenLeases, elsewhere: Passed
) -> None:
    """This sidecar was frozen, and does not know yet that it owns the partition no more."""
    partition = await world.owns(0, [0, 1])
    one, two = (each.lease for each in await world.leases(partition, 2))
    asked = Open(partition.key, "pod-9#1", 1, 1, 0, create_at=0)
    await world.flusher.open(asked, LedgerHandle(partition.key))
    untaken.give_back([one, two])
    await asyncio.sleep(0.1)
    assert elsewhere.passed == [one, two]


async def test_leases_that_are_not_of_this_subscription_are_left_alone(
    world: World, untaken: UntakenLeases, elsewhere: Passed
) -> None:
    """R27: such as those that were signed with another key."""
    partition = await world.owns(0, [0])
    (lease,) = await world.leases(partition)
    token = world.context.keys.open(lease.lease)
    signer = world.context.keys.signer("another", token.topic_id, token.partition)
    foreign = signer.token(token.offset, token.fence, token.rollback_epoch, token.attempt)
    untaken.give_back(["v1.of another key", foreign])
    await asyncio.sleep(0.1)
    assert elsewhere.passed == []
    assert statuses(partition, 1) == [EntryStatus.LEASED]
