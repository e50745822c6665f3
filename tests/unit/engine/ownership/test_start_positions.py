"""Where a new group starts: decided once, for all partitions, whoever asks later (R6)."""

from __future__ import annotations

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.ownership.start_positions import StartPositions
from ackd.errors import BrokerError
from ackd.ports import Committed, TopicInfo
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

OWN = "ackd.retry.work"
OWN_ID = bytes(16)
INFO = TopicInfo(TOPIC, TOPIC_ID, 2)


def tp(number: int, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(topic, number)


@pytest.fixture
def start(world: World) -> StartPositions:
    """Of a topic of two partitions whose logs are not empty."""
    world.consumer.known = [INFO, TopicInfo(OWN, OWN_ID, 1)]
    world.consumer.logs = {tp(0): (5, 50), tp(1): (7, 70), tp(0, OWN): (3, 30)}
    return sidecar(world)


def sidecar(world: World) -> StartPositions:
    return StartPositions(NAME, world.state.settings, world.consumer, world.context.store, own=OWN)


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({"start": "latest"}, [50, 70]),
        ({"start": "earliest"}, [5, 7]),
        ({"start": "timestamp", "start_timestamp_ms": 33}, [33, 33]),
    ],
)
async def test_a_new_group_starts_as_it_is_set(
    world: World, settings: dict[str, object], starts: list[int]
) -> None:
    world.sets(**settings)
    world.consumer.known = [INFO]
    world.consumer.logs = {tp(0): (5, 50), tp(1): (7, 70)}
    made = sidecar(world)
    assert [await made.of(tp(number), INFO) for number in range(2)] == starts


async def test_it_is_resolved_once_for_all_sidecars(world: World, start: StartPositions) -> None:
    """A sidecar that opens its partition an hour later must not skip that hour."""
    assert await start.of(tp(0), INFO) == 50
    world.consumer.logs[tp(1)] = (7, 7_000)
    assert await start.of(tp(1), INFO) == 70
    assert await sidecar(world).of(tp(1), INFO) == 70


async def test_of_two_that_resolve_at_once_the_first_counts(
    world: World, start: StartPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_new = world.context.store.put_new

    async def overtaken(name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        monkeypatch.undo()
        world.consumer.logs[tp(0)] = (5, 60)
        assert await sidecar(world).of(tp(0), INFO) == 60
        return await put_new(name, value, ttl_ms)

    monkeypatch.setattr(world.context.store, "put_new", overtaken)
    assert await start.of(tp(0), INFO) == 60


async def test_what_appears_later_is_read_from_its_beginning(
    world: World, start: StartPositions
) -> None:
    """A partition, another topic of the name, and the group's own retry topic: all of it is new."""
    assert await start.of(tp(0), INFO) == 50
    world.consumer.logs[tp(2)] = (4, 40)
    assert await start.of(tp(2), TopicInfo(TOPIC, TOPIC_ID, 3)) == 4
    assert await start.of(tp(0), TopicInfo(TOPIC, bytes(16), 2)) == 5
    assert await start.of(tp(0, OWN), TopicInfo(OWN, OWN_ID, 1)) == 3


async def test_a_group_that_has_commits_is_not_new(world: World, start: StartPositions) -> None:
    """I1: nothing below its end may be skipped where it has not committed."""
    world.consumer.positions[tp(0)] = Committed(20, "")
    assert await start.of(tp(1), INFO) == 7


async def test_what_could_not_be_resolved_is_resolved_the_next_time(
    world: World, start: StartPositions
) -> None:
    world.consumer.away = True
    with pytest.raises(BrokerError):
        await start.of(tp(0), INFO)
    world.consumer.away = False
    assert await start.of(tp(0), INFO) == 50
