"""Open leases of applications here, also of partitions that others own by now."""

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


async def test_they_are_kept_only_if_somebody_will_give_them_back(world: World) -> None:
    partition = await world.owns(0, [0])
    (got,) = await world.leases(partition)
    none = HandedLeases()
    none.note(partition)
    assert none.take() == []
    some = HandedLeases(keep=True)
    some.note(partition)
    assert some.take() == [got.lease]
    assert some.take() == []


async def test_i8_the_newest_are_kept(world: World) -> None:
    partition = await world.owns(0, [0])
    (got,) = await world.leases(partition)
    handed = HandedLeases(keep=True, leases=[str(each) for each in range(HANDED_MAX)])
    handed.note(partition)
    left = handed.take()
    assert (len(left), left[0], left[-1]) == (HANDED_MAX, "1", got.lease)
