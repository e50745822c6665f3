"""The fetch throttle: full buffers pause fetching, and room lets it go on."""

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.delivery.fetch_ahead import FAST_MS, FIRST, LEAST, SLOW_MS, FetchAhead
from ackd.engine.delivery.fetch_throttle import FetchThrottle
from ackd.engine.partition.partition import Partition
from tests.unit.engine.world import TOPIC, World


@pytest.fixture
def throttle(world: World) -> FetchThrottle:
    return world.fetch_throttle


async def acks(world: World, partition: Partition) -> None:
    """The first message that is ready is over at the store and here."""
    (lease,) = await world.leases(partition)
    partition.ledger.acked([lease.record.offset])


@pytest.mark.parametrize(("setting", "most"), [("buffer_max", 4), ("window_bytes_max", 40)])
async def test_i8_fetching_pauses_when_the_buffers_are_full_and_goes_on_with_room(
    world: World, throttle: FetchThrottle, setting: str, most: int
) -> None:
    world.sets(**{setting: most})
    partition = await world.owns(0, [0, 1, 2])
    throttle.adjust()
    assert world.consumer.told == []
    world.fetches(partition, [3])
    throttle.adjust()
    throttle.adjust()
    assert world.consumer.told == [("pause", partition.tp)]
    assert throttle.paused
    await acks(world, partition)
    throttle.adjust()
    assert throttle.paused is (setting == "buffer_max")  # half of it, or a tenth of the bytes
    await acks(world, partition)
    throttle.adjust()
    assert world.consumer.told[1:] == [("resume", partition.tp)]
    assert not throttle.paused


async def test_fetching_goes_on_when_a_tenth_of_the_window_is_free(
    world: World, throttle: FetchThrottle
) -> None:
    world.sets(window_bytes_max=100)
    partition = await world.owns(0, [0], size=5)
    world.fetches(partition, [1], size=5)
    world.fetches(partition, [2], size=90)
    throttle.adjust()
    for paused in (True, False):
        assert throttle.paused
        await acks(world, partition)
        throttle.adjust()
        assert throttle.paused is paused


async def test_a_partition_that_is_taken_while_fetching_is_paused_is_paused_too(
    world: World, throttle: FetchThrottle
) -> None:
    world.sets(buffer_max=1)
    await world.owns(0, [0, 1])
    throttle.adjust()
    await world.owns(1)
    throttle.adjust()
    assert world.consumer.told == [
        ("pause", TopicPartition(TOPIC, 0)),
        ("pause", TopicPartition(TOPIC, 1)),
    ]


async def test_a_new_fetch_session_is_paused_again(world: World, throttle: FetchThrottle) -> None:
    """The consumer forgot the pause of the old one."""
    world.sets(buffer_max=1)
    partition = await world.owns(0, [0, 1])
    throttle.adjust()
    partition.ledger.intake.fetching(9, 2)
    throttle.adjust()
    throttle.adjust()
    assert world.consumer.told == [("pause", partition.tp)] * 2


async def test_a_partition_that_was_given_away_is_not_resumed(
    world: World, throttle: FetchThrottle
) -> None:
    world.sets(buffer_max=1)
    given, kept = await world.owns(0, [0]), await world.owns(1)
    throttle.adjust()
    world.partitions.remove(given)
    given.close()
    throttle.adjust()
    assert not throttle.paused
    assert world.consumer.told[2:] == [("resume", kept.tp)]


async def test_so_much_is_fetched_ahead_as_applications_take_within_seconds(world: World) -> None:
    """A broker that hides each message wants a call for each of them every few seconds."""
    ahead = FetchAhead(world.context.clock)
    throttle = FetchThrottle(world.state, world.partitions, ahead)
    partition, at = await world.owns(0), 0
    limits, paused = [FIRST], list[bool]()
    for took_ms in (FAST_MS, FAST_MS, SLOW_MS - 1, *[SLOW_MS] * 5):
        more = list(range(at, at + limits[-1] - partition.ledger.buffered))
        at += len(more)
        world.fetches(partition, more)
        throttle.adjust()
        paused.append(throttle.paused)
        world.clock.pass_ms(took_ms)
        half = partition.ledger.buffered - limits[-1] // 2
        partition.ledger.grants.take(half, 1 << 62)
        throttle.adjust()
        paused.append(throttle.paused)
        limits.append(ahead.limit)
    assert paused == [True, False] * 8
    assert limits == [FIRST, 512, 1024, 1024, 512, 256, 128, LEAST, LEAST]


async def test_no_more_is_fetched_ahead_than_is_allowed(world: World) -> None:
    ahead = FetchAhead(world.context.clock)
    for _ in range(20):
        ahead.full()
        ahead.half(10_000)
    assert ahead.limit == 10_000
    world.sets(buffer_max=2)
    throttle = FetchThrottle(world.state, world.partitions, ahead)
    await world.owns(0, [0, 1])
    throttle.adjust()
    assert throttle.paused
