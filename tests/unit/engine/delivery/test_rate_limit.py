"""Tokens come from the store as receives need them, lapse, and are asked for one call at a time."""

import asyncio

import pytest

from ackd.core.rate_bucket import TokensTaken
from ackd.engine.delivery.rate_limit import HOLD_MS, PAUSE_MS_MAX, SLICE_MS, RateLimit, burst_of
from ackd.errors import StoreError
from ackd.ports import Member
from tests.unit.engine.world import NAME, TestStore, World

RATE = 100.0
BURST = 20


class Asked(TestStore):
    """A store that remembers how many tokens each call wanted."""

    wanted: list[int]

    async def take(
        self, subscription: str, count: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        self.wanted.append(count)
        if self.away:
            raise StoreError
        return await super().take(subscription, count, rate_per_s, burst)


class Limit(RateLimit):
    """With the world that it is in. `times`: how often it said that tokens came."""

    world: World
    store: Asked
    times: list[int]


@pytest.fixture
def limit(world: World) -> Limit:
    """100 messages a second, 20 at once."""
    store = world.store = Asked(world.clock, world.data)
    store.wanted = []
    object.__setattr__(world.context, "store", store)
    world.sets(rate_per_s=RATE, rate_burst=BURST)
    made = Limit(
        world.state, world.context, world.membership, lambda: made.times.append(made.left())
    )
    made.world, made.store, made.times = world, store, []
    return made


async def asks(limit: Limit, count: int) -> int:
    """Want so many, and let the store answer; what there is then."""
    limit.want(count)
    for _ in range(5):
        await asyncio.sleep(0)
    return limit.left()


async def test_without_tokens_nothing_may_go_and_the_store_is_asked(limit: Limit) -> None:
    assert limit.left() == 0
    assert await asks(limit, 8) == 8
    limit.spend(3)
    assert (limit.left(), limit.times) == (5, [8])


async def test_a_call_that_dies_is_no_secret(limit: Limit) -> None:
    """Nobody would ask for tokens again: the sidecar must not stay up, and ready."""

    async def broken(*_: object) -> TokensTaken:
        raise ValueError("planted")

    limit.store.take = broken  # type: ignore[assignment,method-assign]
    assert await asks(limit, 8) == 0
    assert "planted" in limit.world.context.vitals.failure


async def test_a_little_more_is_taken_than_one_receive_wants(limit: Limit) -> None:
    """What all sidecars may hold unused is a slice of the rate, divided among them."""
    assert await asks(limit, 1) == int(RATE * SLICE_MS / 1000) == 5
    other = Member("pod-2", 1, 0, "", (), "")
    limit.world.membership.view.alive = [other] * 4
    limit.spend(5)
    assert await asks(limit, 1) == 1


async def test_tokens_that_nobody_uses_lapse(limit: Limit) -> None:
    await asks(limit, 8)
    limit.world.clock.pass_ms(HOLD_MS - 1)
    assert limit.left() == 8
    limit.world.clock.pass_ms(1)
    assert limit.left() == 0


async def test_what_the_store_did_not_grant_comes_back_and_holds_again(limit: Limit) -> None:
    await asks(limit, 8)
    limit.spend(6)
    limit.world.clock.pass_ms(HOLD_MS)
    limit.give_back(3)  # the two that nobody used have lapsed
    limit.world.clock.pass_ms(HOLD_MS - 1)
    assert limit.left() == 3


async def test_one_call_at_a_time(limit: Limit) -> None:
    limit.want(8)
    limit.want(8)
    assert limit.asking
    assert await asks(limit, 8) == 8
    assert (limit.store.wanted, limit.asking) == ([8], False)


async def test_an_empty_bucket_is_asked_again_when_it_has_some(limit: Limit) -> None:
    await asks(limit, BURST)
    limit.spend(BURST)
    assert await asks(limit, 1) == 0
    waits = limit.world.count("ackd_rate_waits_total", subscription=NAME)
    await asks(limit, 1)
    assert limit.store.wanted == [BURST, 5]  # too early: a timer is set
    assert waits == 1
    await asyncio.sleep(0.01)  # 1 / RATE
    assert limit.times == [BURST, 0, 0]  # whoever waits may ask now
    assert await asks(limit, 1) == 1


async def test_while_the_store_is_away_it_is_asked_once_a_second(limit: Limit) -> None:
    limit.store.away = True
    assert await asks(limit, 1) == 0
    await asyncio.sleep((PAUSE_MS_MAX - 1) / 1000)
    await asks(limit, 1)
    assert limit.store.wanted == [5]
    await asyncio.sleep(0.001)
    limit.store.away = False
    assert await asks(limit, 1) == 5


async def test_without_a_rate_nothing_is_counted(limit: Limit) -> None:
    limit.world.sets(rate_per_s=0.0)
    limit.spend(10)
    limit.give_back(10)
    assert (limit.limited, limit.left()) == (False, 0)


@pytest.mark.parametrize(
    ("rate_per_s", "burst", "found"),
    [(100.0, 20, 20), (100.0, 0, 100), (0.5, 0, 1), (1_000.0, 1, 50), (1.5, 0, 2)],
)
def test_a_burst_is_at_least_what_comes_between_two_asks(
    rate_per_s: float, burst: int, found: int
) -> None:
    assert burst_of(rate_per_s, burst) == found
