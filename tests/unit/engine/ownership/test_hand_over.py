"""What the group or an operator takes away: progress is written, and who owns it then (R34)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.ownership.hand_over import HANDOVER_MS, PartitionHandOver
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from tests.unit.engine.ownerships import ownership_of
from tests.unit.engine.world import TOPIC, World

ONE, TWO = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class Handing:
    """A sidecar with two assigned partitions, one of which it owns. `written`: what was written."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.written: list[Partition] = []
        self.ownership = ownership_of(world, self._commit_first)
        self.handing = PartitionHandOver(
            world.state, world.partitions, world.membership, self.ownership
        )

    async def _commit_first(self, partition: Partition) -> None:
        """Nothing is taken here."""

    async def owns(self) -> Partition:
        for tp in (ONE, TWO):
            self.world.partitions.assign(tp)
        return await self.world.owns(0)

    async def write(self, partitions: Sequence[Partition]) -> None:
        assert set(self.world.partitions.assigned) == {ONE, TWO}, "commits need the assignment"
        self.written += partitions

    @property
    def handed(self) -> list[str]:
        return self.world.membership.note.handed


@pytest.fixture
def scene(world: World) -> Handing:
    return Handing(world)


async def test_what_the_group_takes_away_is_owned_until_another_takes_it(scene: Handing) -> None:
    partition = await scene.owns()
    await scene.handing.give_back([ONE, TWO], [partition], scene.write)
    assert scene.written == [partition]
    partitions = scene.world.partitions
    assert (partitions.all(), partitions.assigned) == ([partition], {})
    assert not partition.closed
    assert scene.handed == []


async def test_what_is_given_up_is_another_ones_at_once(scene: Handing) -> None:
    partition = await scene.owns()
    await scene.handing.give_up([ONE, TWO], [partition], scene.write)
    assert scene.written == [partition]
    partitions = scene.world.partitions
    assert (partitions.all(), partitions.assigned) == ([], {})
    assert partition.closed
    assert scene.handed == [partition.key.text()]


async def test_what_another_has_taken_meanwhile_is_not_given_up_again(scene: Handing) -> None:
    partition = await scene.owns()

    async def taken(_: Sequence[Partition]) -> None:
        scene.ownership.drop(partition)  # as when it is fenced

    await scene.handing.give_up([ONE, TWO], [partition], taken)
    assert scene.handed == []


@pytest.mark.parametrize("how", ["slow", "away"])
async def test_it_goes_on_without_the_last_writes(scene: Handing, how: str) -> None:
    partition = await scene.owns()

    async def fails(_: Sequence[Partition]) -> None:
        if how == "away":
            raise StoreError("the store is away")
        await asyncio.Event().wait()

    began_ms = scene.world.clock.monotonic_ms()
    await scene.handing.give_back([ONE], [partition], fails)
    assert scene.world.clock.monotonic_ms() - began_ms <= HANDOVER_MS
    assert list(scene.world.partitions.assigned) == [TWO]
    await scene.handing.give_up([TWO], [partition], fails)
    assert scene.handed == [partition.key.text()]
