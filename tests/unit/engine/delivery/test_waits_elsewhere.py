"""Receives at other sidecars: who may wait there, and whose messages are taken."""

import asyncio
from collections.abc import Sequence

import pytest

from ackd.api.messages import Delivery, ReceiveRequest, SettleVerb, Status
from ackd.engine.delivery.rate_limit import RateLimit
from ackd.engine.delivery.waiters import Waiter, WaiterQueue
from ackd.engine.delivery.waits_elsewhere import WaitsElsewhere
from tests.unit.engine.delivery.room import Room
from tests.unit.engine.world import World, record


class Others:
    """Implements `ackd.engine.delivery.elsewhere.Elsewhere`: remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Waiter | None]] = []
        self.returned: list[str] = []

    def wait(self, waiter: Waiter) -> bool:
        self.asked.append(("wait", waiter))
        return True

    def end(self, waiter: Waiter) -> None:
        self.asked.append(("end", waiter))

    def reached(self) -> bool:
        return True

    def surplus(self) -> None:
        self.asked.append(("surplus", None))

    def give_back(self, leases: Sequence[str]) -> None:
        self.returned += leases


def delivery() -> Delivery:
    return Delivery("v1.x", "orders", 0, record(1), 1, 17, 0, 0)


class Bench:
    """The part, its queue, and the other sidecars."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.queue = WaiterQueue()
        self.rate = RateLimit(world.state, world.context, world.membership, lambda: None)
        self.waits = WaitsElsewhere(world.state, world.breaker, self.queue, self.rate)
        self.others = Others()
        self.waits.connect(self.others)

    def enters(self, most: int = 1, wait_ms: int = 5_000, *, relayed: bool = False) -> Waiter:
        loop = asyncio.get_running_loop()
        request = ReceiveRequest(max=most, wait_ms=wait_ms)
        relay = Room() if relayed else None
        waiter = Waiter(request, loop.create_future(), loop.time(), relay)
        self.queue.join(waiter)
        waiter.has_time(Waiter.timed_out)
        return waiter

    def fails(self) -> None:
        """The breaker opens; one trial may go out each minute."""
        self.world.sets(circuit_breaker_failures=1, circuit_breaker_trial_ms=60_000)
        self.world.breaker.settled(SettleVerb.RETRY, Status.RETRYING, 1)


@pytest.fixture
async def bench(world: World) -> Bench:
    return Bench(world)


async def test_without_other_sidecars_nothing_is_asked(world: World) -> None:
    bench = Bench(world)
    alone = WaitsElsewhere(world.state, world.breaker, bench.queue, bench.rate)
    waiter = bench.enters()
    assert not alone.wait(waiter)
    alone.leave(waiter)
    alone.surplus()
    alone.give_back(["v1.x"])
    alone.stop()
    assert (alone.connected, alone.reached()) == (False, False)
    assert (bench.others.asked, bench.others.returned) == ([], [])


async def test_a_receive_waits_there_until_it_leaves(bench: Bench) -> None:
    waiter = bench.enters()
    assert bench.waits.wait(waiter)
    bench.waits.leave(waiter)
    assert bench.others.asked == [("wait", waiter), ("end", waiter)]
    assert (bench.waits.connected, bench.waits.reached()) == (True, True)


async def test_one_of_another_sidecar_does_not_go_to_a_third(bench: Bench) -> None:
    waiter = bench.enters(relayed=True)
    assert not bench.waits.wait(waiter)
    bench.waits.leave(waiter)
    assert bench.others.asked == []


async def test_what_another_sidecar_brings_ends_the_wait(bench: Bench) -> None:
    waiter, found = bench.enters(), delivery()
    assert bench.waits.bring(waiter, [found])
    assert waiter.future.result() == [found]
    assert (len(bench.queue), bench.others.asked) == (0, [("end", waiter)])


async def test_who_does_not_wait_any_more_takes_nothing(bench: Bench) -> None:
    gone, granting, served = bench.enters(), bench.enters(), bench.enters()
    gone.leave()
    granting.ask(1, 10)
    served.add([delivery()])
    assert not any(bench.waits.bring(each, [delivery()]) for each in (gone, granting, served))
    assert not granting.future.done()


async def test_a_pause_that_began_meanwhile_refuses_the_messages(bench: Bench) -> None:
    waiter = bench.enters()
    bench.world.state.paused = True
    assert bench.waits.most(waiter) == 0
    assert not bench.waits.bring(waiter, [delivery()])
    bench.world.state.paused = False
    assert bench.waits.bring(waiter, [delivery()])


async def test_messages_of_others_are_trials_of_an_open_breaker(bench: Bench) -> None:
    bench.fails()
    early = bench.enters()
    assert bench.waits.most(early) == 0
    await asyncio.sleep(60)
    first, second = bench.enters(5), bench.enters(5)
    assert (bench.waits.most(first), bench.waits.most(second)) == (1, 1)
    assert not bench.waits.bring(first, [delivery(), delivery()])
    assert bench.waits.bring(first, [delivery()])
    assert not bench.waits.bring(second, [delivery()])
    bench.world.breaker.stop()


async def test_when_nobody_has_messages_only_those_are_answered_whose_time_is_up(
    bench: Bench,
) -> None:
    over, granting, tokens, waits = (bench.enters(wait_ms=ms) for ms in (0, 0, 0, 5_000))
    granting.ask(1, 10)
    bench.waits.nothing(granting)
    bench.waits.nothing(waits)
    bench.rate.asking = True
    bench.waits.nothing(tokens)
    bench.rate.asking = False
    bench.waits.nothing(over)
    each = (over, granting, tokens, waits)
    assert [waiter.future.done() for waiter in each] == [True, False, False, False]


async def test_a_stop_calls_every_receive_back(bench: Bench) -> None:
    one, relayed = bench.enters(), bench.enters(relayed=True)
    bench.waits.stop()
    assert bench.others.asked == [("end", one)]
    assert not bench.waits.bring(one, [delivery()])
    assert bench.waits.most(relayed) == 0


async def test_surplus_and_foreign_leases_are_passed_on(bench: Bench) -> None:
    bench.waits.surplus()
    bench.waits.give_back(["v1.x"])
    assert (bench.others.asked, bench.others.returned) == ([("surplus", None)], ["v1.x"])
