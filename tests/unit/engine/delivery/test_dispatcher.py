"""The dispatcher: which receive gets which message, what holds it back, and what goes back."""

import asyncio
from dataclasses import replace

import pytest

from ackd.api.control import Pause
from ackd.api.messages import Delivery, Received, ReceiveRequest
from ackd.core.ledger.entry import EntryStatus
from ackd.core.record.operations import ReplayAck
from ackd.engine.delivery.dedup import Dedup, Then
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.waiters import WAITERS_MAX
from ackd.engine.partition.partition import Partition
from ackd.errors import DrainingError, StoreError, StoreUnknownError
from tests.unit.engine.delivery.room import Room
from tests.unit.engine.world import LEASE_MS, NAME, World


@pytest.fixture
def pauses() -> list[Pause]:
    return []


@pytest.fixture
def dispatcher(world: World, pauses: list[Pause]) -> Dispatcher:
    """Without deduplication."""
    made = world.dispatcher(pauses=lambda: pauses)
    world.state.signals.deliver.connect(made.serve)
    return made


async def brings(
    world: World, dispatcher: Dispatcher, *offsets: int, number: int = 0, size: int = 10
) -> Partition:
    """A partition with these messages; the dispatcher hears when it has some."""
    wiring = replace(world.events.wiring(), ready=dispatcher.ready)
    return await world.owns(number, offsets, size=size, wiring=wiring)


def offsets(received: Received) -> list[int]:
    return [each.record.offset for each in received.messages]


def limits(received: Received) -> str | None:
    assert received.messages == []
    return received.limited_by


async def test_a_message_that_is_there_comes_at_once(world: World, dispatcher: Dispatcher) -> None:
    partition = await brings(world, dispatcher, 0, 1, 2)
    began_ms = world.clock.monotonic_ms()
    received = await dispatcher.receive(ReceiveRequest(max=2, wait_ms=9_000, holder="packer"))
    assert offsets(received) == [0, 1]
    assert world.clock.monotonic_ms() == began_ms
    assert received.messages[0].deadline_ms == began_ms + LEASE_MS
    entry = partition.ledger.entry(0)
    assert entry is not None
    assert (entry.holder, partition.ledger.leased) == ("packer", 2)


async def test_a_receive_waits_for_as_long_as_it_says(world: World, dispatcher: Dispatcher) -> None:
    partition = await brings(world, dispatcher)
    began_ms = world.clock.monotonic_ms()
    assert limits(await dispatcher.receive(ReceiveRequest(wait_ms=700))) is None
    assert world.clock.monotonic_ms() - began_ms == 700
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(dispatcher.receive(ReceiveRequest(wait_ms=700)))
        await asyncio.sleep(0.5)
        world.fetches(partition, [0])
    assert offsets(waiting.result()) == [0]
    assert world.clock.monotonic_ms() - began_ms == 1_200


async def test_without_a_wait_an_empty_answer_comes_at_once(
    world: World, dispatcher: Dispatcher
) -> None:
    await brings(world, dispatcher)
    began_ms = world.clock.monotonic_ms()
    assert limits(await dispatcher.receive(ReceiveRequest())) is None
    assert world.clock.monotonic_ms() == began_ms


async def test_who_came_first_is_served_first(world: World, dispatcher: Dispatcher) -> None:
    partition = await brings(world, dispatcher)
    async with asyncio.TaskGroup() as group:
        one = group.create_task(dispatcher.receive(ReceiveRequest(wait_ms=50)))
        await asyncio.sleep(0.01)
        two = group.create_task(dispatcher.receive(ReceiveRequest(wait_ms=50)))
        await asyncio.sleep(0.01)
        world.fetches(partition, [0])
    assert (offsets(one.result()), two.result().messages) == ([0], [])


async def test_partitions_take_turns(world: World, dispatcher: Dispatcher) -> None:
    for number in (0, 1):
        await brings(world, dispatcher, 0, 1, number=number)
    got = [await dispatcher.receive(ReceiveRequest()) for _ in range(4)]
    assert [each.messages[0].partition for each in got] == [0, 1, 0, 1]


async def test_one_receive_takes_from_several_partitions(
    world: World, dispatcher: Dispatcher
) -> None:
    for number in (0, 1):
        await brings(world, dispatcher, 0, number=number)
    received = await dispatcher.receive(ReceiveRequest(max=5))
    assert sorted(each.partition for each in received.messages) == [0, 1]


async def test_the_answers_bytes_are_bounded_but_one_message_always_comes(
    world: World, dispatcher: Dispatcher
) -> None:
    await brings(world, dispatcher, *range(5), size=40)
    assert offsets(await dispatcher.receive(ReceiveRequest(max=5, bytes_max=80))) == [0, 1]
    assert offsets(await dispatcher.receive(ReceiveRequest(max=5, bytes_max=0))) == [2]
    await brings(world, dispatcher, *range(5), number=1, size=40)
    received = await dispatcher.receive(ReceiveRequest(max=5, bytes_max=120))
    assert len(received.messages) == 3  # of both together


async def test_a_lease_time_of_its_own(world: World, dispatcher: Dispatcher) -> None:
    await brings(world, dispatcher, 0)
    received = await dispatcher.receive(ReceiveRequest(lease_ms=1_234))
    assert received.messages[0].deadline_ms == world.clock.wall_ms() + 1_234


async def test_whose_grants_gave_nothing_keeps_its_turn(
    world: World, dispatcher: Dispatcher
) -> None:
    """Another sidecar has finished the message, which the owner did not know yet."""
    partition = await brings(world, dispatcher, 0)
    await world.flusher.submit(world.handle(), [ReplayAck(0)])
    async with asyncio.TaskGroup() as group:
        one = group.create_task(dispatcher.receive(ReceiveRequest(wait_ms=50)))
        two = group.create_task(dispatcher.receive(ReceiveRequest(wait_ms=50)))
        await asyncio.sleep(0.01)
        world.fetches(partition, [1])
    assert (offsets(one.result()), two.result().messages) == ([1], [])


# --- what holds messages back


async def test_each_limit_has_a_name(world: World, dispatcher: Dispatcher) -> None:
    assert limits(await dispatcher.receive(ReceiveRequest())) == "no-partitions"
    partition = await brings(world, dispatcher, 0, 1)
    world.sets(in_flight_max=1)
    await dispatcher.receive(ReceiveRequest())
    assert limits(await dispatcher.receive(ReceiveRequest())) == "in-flight"
    world.sets(in_flight_max=10)
    partition.reload()
    assert limits(await dispatcher.receive(ReceiveRequest())) == "store"
    world.sets(circuit_breaker_failures=1)
    world.breaker.expired(1)
    assert limits(await dispatcher.receive(ReceiveRequest())) == "circuit-breaker"
    world.breaker.stop()


async def test_a_pause_holds_everything_and_its_end_is_waited_for(
    world: World, dispatcher: Dispatcher, pauses: list[Pause]
) -> None:
    await brings(world, dispatcher, 0)
    world.state.paused = True
    pauses.append(Pause("group", "upgrade", 0, 0))
    received = await dispatcher.receive(ReceiveRequest(wait_ms=10))
    assert limits(received) == "paused"
    assert received.paused is not None
    assert received.paused["reason"] == "upgrade"
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(dispatcher.receive(ReceiveRequest(wait_ms=60_000)))
        await asyncio.sleep(1)
        world.state.paused = False
        world.state.signals.deliver()
    assert offsets(waiting.result()) == [0]


async def test_i8_receives_that_end_do_not_fill_the_queue_behind_one_that_waits(
    dispatcher: Dispatcher,
) -> None:
    """Neither those that do not wait, nor those whose time is up or whose caller goes."""
    long = dispatcher.enter(ReceiveRequest(wait_ms=60_000))
    for _ in range(WAITERS_MAX):
        assert limits(await dispatcher.receive(ReceiveRequest())) is not None
        dispatcher.leave(dispatcher.enter(ReceiveRequest(wait_ms=60_000)))
        dispatcher.end(dispatcher.enter(ReceiveRequest(wait_ms=60_000)))
    assert limits(await dispatcher.receive(ReceiveRequest(wait_ms=1))) is not None
    assert dispatcher.waiters() == 1
    dispatcher.leave(long)


async def test_the_share_counts_leases_that_are_being_asked_for(
    world: World, dispatcher: Dispatcher
) -> None:
    await brings(world, dispatcher, *range(5))
    world.sets(in_flight_max=3)
    waiters = [dispatcher.enter(ReceiveRequest(max=2)) for _ in range(3)]
    got = [await dispatcher.answer(each) for each in waiters]
    assert [offsets(each) for each in got] == [[0, 1], [2], []]
    assert got[2].limited_by == "in-flight"


class FirstAreRepeats(Dedup):
    """Settles the first so many messages without delivery."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(world.state, world.context)
        self.left = count

    def check(
        self, partition: Partition, epoch: int, deliveries: list[Delivery], then: Then
    ) -> None:
        """At once."""
        repeats = min(self.left, len(deliveries))
        self.left -= repeats
        asyncio.get_running_loop().call_soon(then, deliveries[repeats:])


async def test_r18_a_repeat_is_no_trial_of_an_open_breaker(world: World) -> None:
    """The application gets the first message that is none, when the first trial is due; each of
    the twenty repeats waited for a trial of its own, 144 s in all.
    """
    dispatcher = world.dispatcher(FirstAreRepeats(world, 20))
    world.state.signals.deliver.connect(dispatcher.serve)
    await brings(world, dispatcher, *range(25))
    world.sets(circuit_breaker_failures=1, circuit_breaker_trial_ms=1_000)
    world.breaker.expired(1)
    began_ms = world.clock.monotonic_ms()
    received = await dispatcher.receive(ReceiveRequest(max=5, wait_ms=30_000))
    assert offsets(received) == [20]
    assert world.clock.monotonic_ms() - began_ms <= 1_100
    assert limits(await dispatcher.receive(ReceiveRequest(max=5))) == "circuit-breaker"
    world.breaker.stop()


async def test_an_open_breaker_lets_one_message_out(world: World, dispatcher: Dispatcher) -> None:
    await brings(world, dispatcher, *range(5))
    world.sets(circuit_breaker_failures=1, circuit_breaker_trial_ms=1_000)
    world.breaker.expired(1)
    received = await dispatcher.receive(ReceiveRequest(max=5, wait_ms=1_200))
    assert offsets(received) == [0]
    assert limits(await dispatcher.receive(ReceiveRequest(max=5))) == "circuit-breaker"
    world.breaker.stop()


async def test_a_rate_is_kept_and_waited_for(world: World, dispatcher: Dispatcher) -> None:
    await brings(world, dispatcher, *range(9))
    world.sets(rate_per_s=10.0, rate_burst=2)
    assert offsets(await dispatcher.receive(ReceiveRequest(max=5, wait_ms=10))) == [0, 1]
    assert limits(await dispatcher.receive(ReceiveRequest(max=5))) == "rate"
    began_ms = world.clock.monotonic_ms()
    assert offsets(await dispatcher.receive(ReceiveRequest(max=5, wait_ms=9_000))) == [2]
    assert 90 <= world.clock.monotonic_ms() - began_ms <= 120


# --- what goes wrong


async def test_i7_the_store_is_away_the_receive_fails_and_the_message_stays_ready(
    world: World, dispatcher: Dispatcher
) -> None:
    await brings(world, dispatcher, 0)
    world.store.away = True
    with pytest.raises(StoreError):
        await dispatcher.receive(ReceiveRequest(wait_ms=5_000))
    world.store.away = False
    assert offsets(await dispatcher.receive(ReceiveRequest())) == [0]


async def test_tokens_of_a_refused_grant_come_back_but_not_of_one_with_an_unknown_outcome(
    world: World, dispatcher: Dispatcher
) -> None:
    await brings(world, dispatcher, *range(5))
    world.sets(rate_per_s=1.0, rate_burst=1)
    world.store.away = True
    dispatcher.rate.give_back(1)  # a token that it held
    with pytest.raises(StoreError):
        await dispatcher.receive(ReceiveRequest())
    assert dispatcher.rate.left() == 1
    world.store.lost = True
    with pytest.raises(StoreUnknownError):
        await dispatcher.receive(ReceiveRequest())
    assert dispatcher.rate.left() == 0


async def test_r21_an_answer_that_came_after_the_lease_is_not_delivered(
    world: World, dispatcher: Dispatcher
) -> None:
    """The sidecar was frozen between the store's answer and its own."""
    await brings(world, dispatcher, 0)
    waiter = dispatcher.enter(ReceiveRequest(lease_ms=1_000))
    world.clock.pass_ms(1_000)
    received = await dispatcher.answer(waiter)
    assert received.messages == []


async def test_r21_who_hangs_up_takes_nothing_and_no_attempt_is_used(
    world: World, dispatcher: Dispatcher
) -> None:
    partition = await brings(world, dispatcher, 0)
    waiter = dispatcher.enter(ReceiveRequest(wait_ms=1_000))
    dispatcher.leave(waiter)
    for _ in range(20):
        await asyncio.sleep(0)
    entry = partition.ledger.entry(0)
    assert entry is not None
    assert entry.status is EntryStatus.READY
    received = await dispatcher.receive(ReceiveRequest())
    assert (offsets(received), received.messages[0].attempt) == ([0], 1)


async def test_who_was_cancelled_while_it_waited_gets_no_message_later(
    world: World, dispatcher: Dispatcher
) -> None:
    partition = await brings(world, dispatcher)
    waiting = asyncio.TaskGroup()
    async with waiting as group:
        task = group.create_task(dispatcher.receive(ReceiveRequest(wait_ms=60_000)))
        await asyncio.sleep(0.1)
        task.cancel()
    world.fetches(partition, [0])
    assert partition.ledger.leased == 0
    assert offsets(await dispatcher.receive(ReceiveRequest())) == [0]


async def test_a_stopping_sidecar_answers_everybody_and_takes_nobody(
    world: World, dispatcher: Dispatcher
) -> None:
    await brings(world, dispatcher)
    waiter = dispatcher.enter(ReceiveRequest(wait_ms=60_000))
    dispatcher.stop()
    with pytest.raises(DrainingError):
        await dispatcher.answer(waiter)
    with pytest.raises(DrainingError):
        dispatcher.enter(ReceiveRequest())
    assert dispatcher.limit() == "draining"


# --- figures


@pytest.mark.parametrize("count", [1, 3])
async def test_bytes_and_waits_are_counted(
    world: World, dispatcher: Dispatcher, count: int
) -> None:
    await brings(world, dispatcher, *range(count), size=40)
    await dispatcher.receive(ReceiveRequest(max=count))
    assert world.count("ackd_delivered_bytes_total", subscription=NAME) == 40 * count


async def test_one_that_lets_go_grants_nothing_and_its_application_waits_on(
    world: World, dispatcher: Dispatcher
) -> None:
    """It may get messages of other sidecars meanwhile; those get none of its own."""
    await brings(world, dispatcher, 0)
    dispatcher.elsewhere.grant_nothing()
    assert dispatcher.ready_count() == 0
    began_ms = world.clock.monotonic_ms()
    assert limits(await dispatcher.receive(ReceiveRequest(wait_ms=700))) is None
    assert world.clock.monotonic_ms() - began_ms == 700
    with pytest.raises(DrainingError):
        dispatcher.enter(ReceiveRequest(wait_ms=700), relay=Room())
