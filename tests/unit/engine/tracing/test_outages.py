"""Outages become spans: of what was up before, from when it was noticed until it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from ackd.engine.tracing.outages import Outages
from ackd.errors import StoreError
from ackd.ports import Condition
from ackd.store.measured import MeasuredStore
from tests.unit.engine.world import World

if TYPE_CHECKING:
    from ackd.telemetry.traces import Traces

AWAY = Condition("broker-away", "no answer", away=True)


class Told(NamedTuple):
    """A span of an outage."""

    of: str
    broker: str
    why: str


class Spans:
    """What `Outages` asks of `Traces`."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._collectors: dict[object, Callable[[], None]] = {}

    def collect(self, owner: object, flush: Callable[[], None]) -> None:
        self._collectors[owner] = flush

    def collected(self, owner: object) -> None:
        self._collectors.pop(owner, None)

    def flush_all(self) -> None:
        for flush in list(self._collectors.values()):
            flush()

    def own(
        self, name: str, more: Mapping[str, str | int], *, start_us: int, error: bool, of: str
    ) -> None:
        assert (name, error, of) == ("outage", True, more["ackd.outage.of"])
        assert start_us > 0
        self.told.append(Told(of, str(more.get("ackd.broker", "")), str(more["error.type"])))


class Watched:
    """A store and a broker that may go away."""

    def __init__(self, world: World) -> None:
        self.world, self.spans = world, Spans()
        self.store = MeasuredStore(world.store, world.metrics)
        self.connected = asyncio.Event()
        traces = cast("Traces", self.spans)
        self.outages = Outages(traces, self.store, {"main": world.broker}, {"main": self.connected})

    def look(self) -> list[Told]:
        """What a flush has told."""
        self.spans.told.clear()
        self.spans.flush_all()
        return self.spans.told

    async def asks(self) -> None:
        try:
            await self.store.get("x")
        except StoreError:
            assert self.world.store.away


@pytest.fixture
async def watched(world: World) -> Watched:
    watched = Watched(world)
    watched.connected.set()
    await watched.asks()
    assert watched.look() == []
    return watched


async def test_an_outage_is_told_when_it_is_over(watched: Watched, world: World) -> None:
    world.broker.open_conditions = [AWAY]
    assert watched.look() == []
    assert watched.look() == []
    world.broker.open_conditions = []
    assert watched.look() == [Told("broker", "main", "broker-away")]
    assert watched.look() == []


async def test_a_store_that_does_not_answer_is_away(watched: Watched, world: World) -> None:
    world.store.away = True
    await watched.asks()
    assert watched.look() == []
    world.store.away = False
    await watched.asks()
    assert watched.look() == [Told("store", "", "store-unavailable")]


async def test_an_outage_between_two_looks_is_told_too(watched: Watched, world: World) -> None:
    world.store.away = True
    await watched.asks()
    world.store.away = False
    await watched.asks()
    assert watched.look() == [Told("store", "", "store-unavailable")]
    assert watched.look() == []


async def test_what_still_lasts_is_told_at_the_stop_and_nothing_after_it(
    watched: Watched, world: World
) -> None:
    world.broker.open_conditions = [AWAY]
    watched.look()
    watched.outages.end()
    assert watched.spans.told == [Told("broker", "main", "broker-away")]
    world.broker.open_conditions = []
    assert watched.look() == []


async def test_a_broker_that_was_never_there_had_no_outage(world: World) -> None:
    """Starting is no outage; readiness says what is missing."""
    watched = Watched(world)
    assert watched.look() == []
    watched.connected.set()
    assert watched.look() == []
    watched.connected.clear()
    watched.look()
    watched.connected.set()
    assert watched.look() == [Told("broker", "main", "broker-unavailable")]
