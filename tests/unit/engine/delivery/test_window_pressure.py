"""A window that fills: a warning, then the oldest messages leave it."""

from dataclasses import dataclass

import pytest

from ackd.core.ledger.send_back import Rules
from ackd.engine.delivery.window_pressure import WindowPressure
from ackd.engine.partition.partition import Partition, Policy
from tests.unit.engine.world import NAME, World

MOST = 1_000
AGE_MS = 60_000
OLD_MS = AGE_MS + 1_000
"""First deliveries are known to the second."""
RULES = Policy(Rules(10 * AGE_MS, AGE_MS, 1_000_000), 0, retry_copies=False)


@dataclass
class Scene:
    """`paused`: fetching is paused; `sending`: copies are on their way."""

    world: World
    pressure: WindowPressure
    paused: bool = False
    sending: bool = False

    @property
    def warnings(self) -> float:
        return self.world.count("ackd_window_warnings_total", subscription=NAME)


@pytest.fixture
def scene(world: World) -> Scene:
    """A window of 1,000 bytes."""
    world.sets(window_bytes_max=MOST)
    scene = Scene(world, None)  # type: ignore[arg-type]
    scene.pressure = WindowPressure(
        world.state, world.context, world.partitions, lambda: scene.paused, lambda: scene.sending
    )
    return scene


async def holds(scene: Scene, *sizes: int, number: int = 0, first: int = 0) -> Partition:
    """A partition whose messages take so many bytes, all of them under lease for long."""
    world = scene.world
    partition = await world.owns(number, policy=RULES)
    for offset, size in enumerate(sizes, first):
        world.fetches(partition, [offset], size=size)
    await world.leases(partition, len(sizes), lease_ms=12 * AGE_MS)
    return partition


def leaves(scene: Scene, partition: Partition) -> list[int]:
    """Offsets that the ledger wants to move now."""
    found = partition.ledger.send_back.stuck(scene.world.clock.monotonic_ms())
    return [each.offset for each in found]


async def test_a_warning_once_until_it_is_calm_again(scene: Scene) -> None:
    partition = await holds(scene, 799)
    scene.pressure.look()
    assert scene.warnings == 0
    scene.world.fetches(partition, [1], size=10)
    for _ in range(3):
        scene.pressure.look()
    assert (scene.warnings, scene.pressure.share()) == (1, 0.809)
    scene.world.sets(window_bytes_max=1_079)  # 75 %: neither full nor calm
    scene.pressure.look()
    scene.world.sets(window_bytes_max=MOST)
    scene.pressure.look()
    assert scene.warnings == 1
    scene.world.sets(window_bytes_max=10 * MOST)
    scene.pressure.look()
    scene.world.sets(window_bytes_max=MOST)
    scene.pressure.look()
    assert scene.warnings == 2


async def test_what_is_old_leaves_a_full_window_until_there_is_room(scene: Scene) -> None:
    partition = await holds(scene, 60, 60, 900)
    scene.world.clock.pass_ms(OLD_MS)
    scene.pressure.look()
    assert leaves(scene, partition) == [0, 1]  # 1,020 bytes are held, 900 are the aim


async def test_what_is_young_stays(scene: Scene) -> None:
    partition = await holds(scene, 60, 60, 900)
    scene.pressure.look()
    assert leaves(scene, partition) == []


async def test_a_window_with_room_keeps_everything(scene: Scene) -> None:
    partition = await holds(scene, 60, 900)
    scene.world.clock.pass_ms(OLD_MS)
    scene.pressure.look()
    assert leaves(scene, partition) == []
    scene.paused = True  # it was full, and fetching has not begun again
    scene.pressure.look()
    assert leaves(scene, partition) == [0]


@pytest.mark.parametrize("case", ["ready", "sending"])
async def test_whoever_makes_room_anyway_is_waited_for(scene: Scene, case: str) -> None:
    """A message that can be delivered, or a copy that is being stored."""
    partition = await holds(scene, 60, 960)
    scene.world.clock.pass_ms(OLD_MS)
    if case == "ready":
        scene.world.fetches(partition, [2])
    else:
        scene.sending = True
    scene.pressure.look()
    assert leaves(scene, partition) == []


async def test_the_oldest_of_all_partitions_goes_first(scene: Scene) -> None:
    old = await holds(scene, 500, number=1)
    scene.world.clock.pass_ms(5_000)
    young = await holds(scene, 500, number=0)
    scene.world.clock.pass_ms(OLD_MS)
    scene.pressure.look()
    assert (leaves(scene, young), leaves(scene, old)) == ([], [0])


async def test_without_a_retry_topic_nothing_can_leave(scene: Scene) -> None:
    world = scene.world
    partition = await world.owns(0, [0], size=MOST)
    await world.leases(partition, 1, lease_ms=12 * AGE_MS)
    world.clock.pass_ms(OLD_MS)
    scene.pressure.look()
    assert leaves(scene, partition) == []
