"""Why a message failed: the store's first and last reason win, whichever sidecar wrote them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ackd.core.record.operations import Settle
from ackd.core.record.protocol import CallTexts
from ackd.core.record.transitions import Verb
from ackd.engine.partition.copy_headers import bounded
from ackd.engine.partition.failure_reasons import learn, reason_text
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from tests.unit.engine.world import World


async def fails(world: World, partition: Partition, offset: int, *reasons: str) -> None:
    """Another sidecar settles the message's leases with these reasons, one after the other."""
    for reason in reasons:
        await world.leases(partition)
        entry = partition.ledger.entry(offset)
        assert entry is not None
        retry = Settle(Verb.RETRY, offset, entry.fence, 1, entry.attempt, 1)
        await world.flusher.submit(
            world.handle(partition.tp.partition), [retry], CallTexts([reason_text(0, reason)])
        )
        await partition.flush()
        world.clock.pass_ms(10)
        partition.ledger.tick(world.clock.monotonic_ms())


async def learnt(world: World, partition: Partition, *offsets: int) -> list[tuple[str, str]]:
    await learn(world.store, {partition: offsets})
    return [partition.copies.errors(each) for each in offsets]


async def test_reasons_that_other_sidecars_got(world: World) -> None:
    partition = await world.owns(0, [0])
    await fails(world, partition, 0, "no disk", "no network", "no luck")
    assert await learnt(world, partition, 0) == [("no disk", "no luck")]


async def test_the_store_knows_more_than_this_sidecar(world: World) -> None:
    """It saw only the last of three failures."""
    partition = await world.owns(0, [0])
    await fails(world, partition, 0, "no disk", "no luck")
    partition.copies.failed_with(0, "no luck")
    assert await learnt(world, partition, 0) == [("no disk", "no luck")]


async def test_what_the_store_has_not_is_what_this_sidecar_got(world: World) -> None:
    """After a loss of its data, or beyond its bound."""
    partition = await world.owns(0, range(2))
    await fails(world, partition, 0, "no disk")
    partition.copies.failed_with(1, "own")
    assert await learnt(world, partition, 0, 1) == [("no disk", "no disk"), ("own", "own")]


async def test_each_partition_gets_its_own(world: World) -> None:
    one, two = await world.owns(0, [0]), await world.owns(1, [0])
    await fails(world, one, 0, "first")
    await fails(world, two, 0, "second")
    wanted: dict[Partition, Sequence[int]] = {one: [0], two: [0]}
    await learn(world.store, wanted)
    assert [each.copies.errors(0)[1] for each in (one, two)] == ["first", "second"]


async def test_a_record_without_reasons_costs_no_call(world: World) -> None:
    partition = await world.owns(0, range(2))
    await world.leases(partition)
    assert not partition.has_texts
    world.store.away = True
    assert await learnt(world, partition, 0) == [("", "")]


async def test_a_store_that_is_away_is_told(world: World) -> None:
    """The copy waits: without its reason it must not be written."""
    partition = await world.owns(0, [0])
    await fails(world, partition, 0, "no disk")
    world.store.away = True
    with pytest.raises(StoreError):
        await learn(world.store, {partition: [0]})


def test_a_reason_is_cut_to_what_a_header_has_room_for() -> None:
    text = reason_text(3, "é" * 100_000)
    assert text.item == 3
    assert text.last == bounded("é" * 100_000)
    assert len(text.last) < 10_000
    text.last.decode()
