"""The circuit breaker counts what settles came to, holds deliveries, and lets single trials out."""

import asyncio

import pytest

from ackd.api.messages import SettleVerb, Status
from ackd.engine.delivery.circuit_breaker import SOURCE, CircuitBreaker
from tests.unit.engine.world import NAME, World

TRIAL_MS = 10_000
ACK = SettleVerb.ACK, Status.ACKED
RETRY = SettleVerb.RETRY, Status.RETRYING


@pytest.fixture
def breaker(world: World) -> CircuitBreaker:
    """It opens after three failures in a row."""
    world.sets(circuit_breaker_failures=3, circuit_breaker_trial_ms=TRIAL_MS)
    return CircuitBreaker(world.state, world.context)


async def test_failures_in_a_row_open_it_and_an_ack_between_begins_anew(
    breaker: CircuitBreaker,
) -> None:
    breaker.settled(*RETRY, 2)
    breaker.settled(*ACK, 1)
    breaker.settled(*RETRY, 2)
    assert not breaker.on
    breaker.settled(SettleVerb.DEAD, Status.DEAD, 1)
    assert breaker.on


@pytest.mark.parametrize(
    ("verb", "status"),
    [
        (SettleVerb.RELEASE, Status.RELEASED),
        (SettleVerb.EXTEND, Status.EXTENDED),
        (SettleVerb.RETRY, Status.LOST),
        (SettleVerb.DEAD, Status.UNAVAILABLE),
        (SettleVerb.ACK, Status.ALREADY_ACKED),
    ],
)
async def test_what_says_nothing_of_the_application_does_not_count(
    breaker: CircuitBreaker, verb: SettleVerb, status: Status
) -> None:
    breaker.settled(verb, status, 100)
    assert not breaker.on
    breaker.settled(*RETRY, 2)
    breaker.settled(verb, status, 1)
    breaker.expired(1)
    assert breaker.on  # it was no success either


async def test_while_it_is_closed_everything_may_go(breaker: CircuitBreaker) -> None:
    assert breaker.room(50) == 50


async def test_open_it_lets_one_message_out_after_the_trials_wait(
    world: World, breaker: CircuitBreaker
) -> None:
    deliver = world.listens("deliver")
    breaker.expired(3)
    assert breaker.room(50) == 0
    assert "circuit-breaker: 3 failures in a row" in world.context.lease_events.reasons(NAME)
    await asyncio.sleep((TRIAL_MS - 1) / 1000)
    assert (deliver, breaker.room(50)) == ([], 0)
    await asyncio.sleep(0.001)
    assert (deliver, breaker.room(50), breaker.room(0)) == (["deliver"], 1, 0)


async def test_the_next_trial_waits_for_longer(world: World, breaker: CircuitBreaker) -> None:
    breaker.expired(3)
    await asyncio.sleep(TRIAL_MS / 1000)
    deliver = world.listens("deliver")
    breaker.tried()
    await asyncio.sleep(TRIAL_MS / 1000)
    assert (deliver, breaker.room(1)) == ([], 0)
    await asyncio.sleep(TRIAL_MS / 2000)
    assert (deliver, breaker.room(1)) == (["deliver"], 1)


async def test_the_first_ack_closes_it_and_delivery_goes_on_at_once(
    world: World, breaker: CircuitBreaker
) -> None:
    breaker.expired(3)
    deliver = world.listens("deliver")
    breaker.settled(*ACK, 1)
    assert (breaker.on, breaker.room(7), deliver) == (False, 7, ["deliver"])
    assert world.context.lease_events.reasons(NAME) == []
    await asyncio.sleep(TRIAL_MS)
    assert deliver == ["deliver"]  # the timer of the trial is gone


async def test_switched_off_it_counts_nothing(world: World) -> None:
    breaker = CircuitBreaker(world.state, world.context)
    breaker.expired(1_000)
    assert not breaker.on


async def test_an_operator_who_switches_it_off_closes_it(
    world: World, breaker: CircuitBreaker
) -> None:
    breaker.expired(3)
    breaker.changed(world.state.live, world.state.live)
    assert breaker.on  # something else was changed
    world.sets(circuit_breaker_failures=0)
    breaker.changed(world.state.live, world.state.live)
    assert not breaker.on


async def test_each_opening_is_counted_once(world: World, breaker: CircuitBreaker) -> None:
    breaker.expired(3)
    breaker.expired(3)
    assert world.count("ackd_circuit_breaker_trips_total", subscription=NAME) == 1
    breaker.settled(*ACK, 1)
    breaker.expired(3)
    assert world.count("ackd_circuit_breaker_trips_total", subscription=NAME) == 2
    assert SOURCE == "circuit-breaker"  # applications read it in `limited_by`
    breaker.stop()


async def test_stopped_it_wakes_nobody(world: World, breaker: CircuitBreaker) -> None:
    breaker.expired(3)
    deliver = world.listens("deliver")
    breaker.stop()
    await asyncio.sleep(TRIAL_MS)
    assert deliver == []
