"""Publishing: which failure is tried again and when, what is refused, and how much (R20)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from ackd.api.messages import PublishRequest
from ackd.config.schema import PublishSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.context import SystemClock
from ackd.engine.publishing.publish import Publisher
from ackd.engine.retry.own_topic import ReservedTopics
from ackd.errors import (
    AckdError,
    BrokerError,
    NotSupportedError,
    OutcomeUnknownError,
    PressureError,
    PublishRefusedError,
    ReservedTopicError,
)
from ackd.ports import Clock, Failure, Outgoing, PublishResult, Stored
from tests.unit.engine.clock import TestClock, TestTimeLoop
from tests.unit.engine.scripted import ScriptedBroker, metric
from tests.unit.engine.world import World as Given

QUICK = PublishSettings(backoff_ms=1, backoff_ms_max=2, timeout_ms=200)
NOT_STORED, UNKNOWN = Failure.NOT_STORED, Failure.UNKNOWN
REFUSED, PRESSURE = Failure.REFUSED, Failure.PRESSURE


class World:
    """A publisher over a broker that does as its script says."""

    def __init__(
        self,
        script: Mapping[bytes, Sequence[Failure]] | None = None,
        settings: PublishSettings = QUICK,
        broker: ScriptedBroker | None = None,
        clock: Clock | None = None,
        bits: int = 7,
    ) -> None:
        self.broker = broker or ScriptedBroker(script or {})
        given = Given(TestClock()).context
        self.context = replace(given, clock=clock or SystemClock(), random_bits=lambda _: bits)
        subscriptions = {"work": SubscriptionSettings(topics=("t",), dead_letter_topic="graves")}
        reserved = ReservedTopics(self.broker, subscriptions)
        self.publisher = Publisher("main", self.broker, settings, self.context, reserved)

    async def publish(self, *values: bytes, **more: Any) -> list[object]:
        """Offsets of what is stored, types of what failed."""
        messages = [
            Outgoing(**{"topic": "t", "key": None, "value": each, **more}) for each in values
        ]
        return shown((await self.publisher.publish(PublishRequest(messages))).results)

    def outcomes(self, outcome: str) -> float:
        return metric(self.context, "ackd_published_total", broker="main", outcome=outcome)


def shown(results: Sequence[object]) -> list[object]:
    return [each.offset if isinstance(each, Stored) else type(each) for each in results]


async def test_what_was_surely_not_stored_is_tried_twice_again_at_once() -> None:
    """Alone, with its neighbours' results kept in their places."""
    world = World({b"b": [NOT_STORED, NOT_STORED]})
    assert await world.publish(b"a", b"b", b"c") == [0, 2, 1]
    assert world.broker.sent == [[b"a", b"b", b"c"], [b"b"], [b"b"]]
    assert metric(world.context, "ackd_publish_retries_total", broker="main") == 2
    assert world.outcomes("stored") == 3


async def test_after_three_tries_it_is_the_brokers_error() -> None:
    world = World({b"b": [NOT_STORED] * 3})
    assert await world.publish(b"b") == [BrokerError]
    assert len(world.broker.sent) == 3
    assert world.outcomes("broker-unavailable") == 1


@pytest.mark.parametrize(
    ("failure", "error"), [(UNKNOWN, OutcomeUnknownError), (REFUSED, PublishRefusedError)]
)
async def test_what_may_be_stored_or_never_will_is_not_tried_again(
    failure: Failure, error: type[AckdError]
) -> None:
    """R20: a second copy of what was stored would be ours."""
    world = World({b"b": [failure]})
    assert await world.publish(b"a", b"b") == [0, error]
    assert len(world.broker.sent) == 1


async def test_pressure_is_waited_for() -> None:
    """Pauses, not the two tries at once, bound how often; others are not sent again."""
    world = World({b"b": [PRESSURE] * 6})
    assert await world.publish(b"a", b"b") == [0, 1]
    assert world.broker.sent == [[b"a", b"b"], *[[b"b"]] * 6]


async def test_pressure_that_stays_ends_with_the_time() -> None:
    world = World({b"b": [PRESSURE] * 100_000})
    assert await world.publish(b"b") == [PressureError]
    assert len(world.broker.sent) > 3


async def test_a_failure_after_pressure_has_its_own_name() -> None:
    world = World({b"b": [PRESSURE, UNKNOWN]})
    assert await world.publish(b"b") == [OutcomeUnknownError]
    assert len(world.broker.sent) == 2


@pytest.mark.parametrize(
    ("bits", "pauses_ms"),
    [
        (0, [800, 1_280, 2_048, 3_276, 5_242, 8_388]),  # 20 % shorter
        (1 << 31, [1_000, 1_600, 2_560, 4_096, 6_553, 10_485]),
        ((1 << 32) - 1, [1_200, 1_920, 3_072, 4_915, 7_864]),  # 20 % longer
    ],
)
def test_pauses_grow_and_the_last_try_is_within_the_time(bits: int, pauses_ms: list[int]) -> None:
    with asyncio.Runner(loop_factory=TestTimeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, TestTimeLoop)
        times_ms = runner.run(_tries(loop.clock, bits))
    assert [after - before for before, after in pairwise(times_ms)] == [
        pytest.approx(each, abs=1) for each in [0, 0, *pauses_ms]
    ]
    assert times_ms[-1] - times_ms[0] < 30_000


async def _tries(clock: TestClock, bits: int) -> list[int]:
    """When a broker under pressure was asked; at first it stored nothing, then it had too much."""
    times_ms: list[int] = []

    class Pressed(ScriptedBroker):
        async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
            times_ms.append(clock.monotonic_ms())
            return await super().publish(messages)

    script = {b"b": [NOT_STORED, NOT_STORED, *[PRESSURE] * 100]}
    settings = PublishSettings(timeout_ms=30_000)
    world = World(script, settings, Pressed(script), clock, bits)
    assert await world.publish(b"b") == [PressureError]
    return times_ms


@pytest.mark.parametrize(
    "topic", ["graves", "ackd.retry.work", "ackd.x", "t/ns/ackd.dead.any", "t/ns/ackd.x"]
)
async def test_nobody_writes_where_only_copies_are(topic: str) -> None:
    """R25: also where the broker has namespaces; the rest of the batch goes."""
    world = World()
    messages = [Outgoing(each, None, b"1") for each in (topic, "t")]
    published = await world.publisher.publish(PublishRequest(messages))
    assert shown(published.results) == [ReservedTopicError, 0]
    assert [each.topic for each in world.broker.stored] == ["t"]


@pytest.mark.parametrize(
    ("able", "more", "error"),
    [
        ({"delayed_publish": False}, {"delay_ms": 1}, NotSupportedError),
        ({"delay_max_ms": 10}, {"delay_ms": 11}, NotSupportedError),
        ({"delay_max_ms": 10}, {"delay_ms": 10}, None),
        ({"explicit_partition": False}, {"partition": 0}, NotSupportedError),
        ({"value_bytes_max": 3}, {"value": b"four"}, PublishRefusedError),
        ({"value_bytes_max": 4}, {"value": b"four"}, None),
    ],
)
async def test_what_the_broker_can_not_do_is_said_before_it_is_asked(
    able: dict[str, Any], more: dict[str, Any], error: type[AckdError] | None
) -> None:
    broker = ScriptedBroker()
    broker.capabilities = replace(broker.capabilities, **able)
    world = World(broker=broker)
    assert await world.publish(b"1", **more) == [error or 0]
    assert bool(broker.sent) == (error is None)


class HeldBroker(ScriptedBroker):
    """Answers when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Wait first."""
        self.asked.set()
        await self.go.wait()
        return await super().publish(messages)


@pytest.mark.parametrize(
    "bound", [{"in_flight_max": 3}, {"in_flight_bytes_max": 39}], ids=["messages", "bytes"]
)
async def test_what_is_under_way_is_bounded(bound: dict[str, int]) -> None:
    """I8: refused as a whole and at once; room is there again after the answer, whatever it was."""
    broker = HeldBroker()
    world = World(settings=replace(QUICK, **bound), broker=broker)  # type: ignore[arg-type]
    ten = b"0123456789"
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.publish(ten, ten))
        await asyncio.wait_for(broker.asked.wait(), 60)
        with pytest.raises(PressureError):
            await world.publish(ten, ten)
        broker.go.set()
    assert first.result() == [0, 1]
    broker.raises = BrokerError("gone")
    with pytest.raises(BrokerError):
        await world.publish(ten)
    broker.raises = None
    assert await world.publish(ten, ten, ten) == [2, 3, 4]
    assert broker.sent[-1] == [ten] * 3
