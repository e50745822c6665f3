"""Open leases of applications here, also of partitions that others own by now."""

from ackd.api.messages import SettleItem, SettleResult, SettleVerb, Status
from ackd.core.record.operations import Settle
from ackd.core.record.transitions import Verb
from ackd.engine.delivery.handed_leases import HANDED_MAX, HandedLeases, held_leases
from tests.unit.engine.world import World


async def test_what_was_granted_here_and_is_open(world: World) -> None:
    partition = await world.owns(0, [0, 1, 2])
    one, two = await world.leases(partition, 2)
    token = world.context.keys.open(one.lease)
    await world.flusher.submit(
        partition.handle, [Settle(Verb.ACK, 0, token.fence, token.rollback_epoch, token.attempt)]
    )
    assert list(held_leases(partition)) == [two.lease]


async def test_leases_of_before_the_term_belong_to_others(world: World) -> None:
    before = await world.owns(0, [0])
    await world.leases(before)
    again = await world.owns(0, [0])
    assert (again.ledger.leased, list(held_leases(again))) == (1, [])


async def test_leases_of_a_partition_that_goes_are_taken_once(world: World) -> None:
    partition = await world.owns(0, [0])
    (got,) = await world.leases(partition)
    handed = HandedLeases()
    handed.note(partition)
    assert handed.take() == [got.lease]
    assert handed.take() == []


def test_a_settle_that_ends_a_lease_ends_the_wait_for_it() -> None:
    handed = HandedLeases()
    ends = [Status.ACKED, Status.ALREADY_ACKED, Status.RETRYING, Status.DEAD, Status.RELEASED]
    open_still = [Status.EXTENDED, Status.INVALID, Status.UNAVAILABLE]
    statuses = [*ends, Status.LOST, *open_still]
    handed.add(status.value for status in statuses)
    items = [SettleItem(status.value, SettleVerb.ACK) for status in statuses]
    handed.settled(items, [SettleResult(status) for status in statuses])
    assert set(statuses) == set(Status)
    assert list(handed.leases) == [status.value for status in open_still]


def test_what_was_looked_up_and_is_open_is_looked_up_last_the_next_time() -> None:
    handed = HandedLeases(dict.fromkeys(["a", "b", "c"]))
    handed.looked("a", over=False)
    handed.looked("b", over=True)
    handed.looked("settled meanwhile", over=False)
    assert list(handed.leases) == ["c", "a"]


async def test_i8_the_newest_are_kept(world: World) -> None:
    partition = await world.owns(0, [0])
    (got,) = await world.leases(partition)
    handed = HandedLeases(dict.fromkeys(str(each) for each in range(HANDED_MAX)))
    handed.note(partition)
    left = handed.take()
    assert (len(left), left[0], left[-1]) == (HANDED_MAX, "1", got.lease)
