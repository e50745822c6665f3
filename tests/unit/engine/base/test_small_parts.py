"""Pauses between tries, events of leases, the live value."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from ackd.api.control import Cancel, Pause
from ackd.core.backoff import Backoff
from ackd.engine.base.lease_events import LeaseEvents
from ackd.engine.base.live import Halt, Live, read_live, write_live
from ackd.engine.base.retry_timer import RetryTimer
from tests.unit.engine.world import World


async def test_pauses_double_to_a_bound(world: World) -> None:
    timer = RetryTimer(world.clock)
    waits_ms = []
    for _ in range(6):
        timer.failed()
        waits_ms.append(timer.again_ms - world.clock.monotonic_ms())
    assert waits_ms == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]


async def test_the_next_try_is_after_the_pause(world: World) -> None:
    timer = RetryTimer(world.clock, Backoff.constant(5_000))
    assert timer.again_ms == 0
    for _ in range(3):
        timer.failed()
        assert timer.again_ms == world.clock.monotonic_ms() + 5_000
        world.clock.pass_ms(100)


async def test_who_listens_hears_of_its_subscription_until_it_forgets() -> None:
    events = LeaseEvents()
    events.tell("a")
    mine, other = events.listen("a"), events.listen("b")
    events.tell("a")
    assert (mine.is_set(), other.is_set()) == (True, False)
    mine.clear()
    events.forget("a", mine)
    events.forget("never", asyncio.Event())
    events.tell("a")
    assert not mine.is_set()


def test_each_source_has_one_reason_to_hold_back() -> None:
    events = LeaseEvents()
    events.hold_back("a", "push", "busy")
    events.hold_back("a", "stream", "slow")
    events.hold_back("a", "push", "down")
    assert events.reasons("a") == ["stream: slow", "push: down"]
    events.hold_back("a", "push", None)
    assert events.reasons("a") == ["stream: slow"]
    assert events.reasons("b") == []


LIVE = Live(
    version=7,
    settings={"lease_ms": 5, "push": {"url": "x"}},
    pause=Pause("group", "deploy", 3, None),
    halt=Halt("operation", 9),
    cancels=[Cancel("orders/0/7", "ack", "wrong", 1, "acked")],
)


@pytest.mark.parametrize("live", [Live(), LIVE])
def test_the_live_value_comes_back(live: Live) -> None:
    assert read_live(write_live(live)) == live


def test_nothing_in_the_store_is_the_value_of_the_beginning() -> None:
    assert read_live(b"") == Live()


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"version": "7"}', b"\xff", b'{"halt": 1}'])
def test_what_can_not_be_read_is_told_from_nothing(data: bytes) -> None:
    """Else a sidecar would write the beginning over what operators have set."""
    assert read_live(data) is None


def test_a_later_version_may_have_more() -> None:
    data = msgspec.json.encode({"version": 9, "tomorrow": [1]})
    assert read_live(data) == Live(version=9)
