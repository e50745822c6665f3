"""One bad message stops nothing: forged copies in the retry topic, each field wrong in each way and
by the hundred from seeds, on the embedded store and on Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleVerb
from ackd.core.origin import Origin
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.runtime import Runtime
from ackd.ports import Headers, Outgoing, Stored
from tests.integration.engine.conftest import StartSidecar
from tests.integration.engine.shop import NAME, Shop
from tests.support.forged import by_seed, one_by_one
from tests.support.wait import wait_until_async

SEEDS = 300
BATCH = 50
REAL = 30
FAR = 1 << 40
"""No message of these tests has this offset: what parses claims nothing that is real."""
HUGE = b"9" * (700 << 10)
STUCK = {"retry_topic": True, "stuck_after_ms": 1_000, "stuck_min_age_ms": 1_000}


def right(runtime: Runtime, topic: str) -> Headers:
    """What ackd itself could have written."""
    state = runtime._subscriptions[NAME].state
    topic_id = runtime._subscriptions[NAME].topics.known[topic].topic_id
    origin = Origin(state.cluster, topic_id, topic, 0, FAR)
    dead = Origin(state.cluster, topic_id, topic, 0, FAR + 1)
    copy = RetryCopy(
        origin, NAME, 5, 7, 9, 1, 0, 900, 800, "age", "a", "b", dead, order_key=4, reset_epoch=1
    )
    return retry_copy_headers(copy, (("own", b"1"),))


class Bench:
    """One sidecar, its topic, and everything that it hands out, acked at once."""

    def __init__(self, runtime: Runtime, topic: str) -> None:
        self.runtime = runtime
        self.topic = topic
        self.broker = next(iter(runtime._brokers.values()))
        self.real: dict[bytes, Delivery] = {}
        self.forged = 0

    async def publish(self, topic: str, messages: Sequence[tuple[bytes, Headers]]) -> None:
        sent = [Outgoing(topic, None, value, headers, partition=0) for value, headers in messages]
        assert all(isinstance(each, Stored) for each in await self.broker.publish(sent))

    async def forge(self, copies: Sequence[Headers]) -> None:
        """Write to the retry topic as any producer of the broker can."""
        topic = self.runtime._subscriptions[NAME].retry_topic.topic.name
        for start in range(0, len(copies), BATCH):
            some = copies[start : start + BATCH]
            await self.publish(topic, [(b"forged", headers) for headers in some])

    async def next(self) -> list[Delivery]:
        """What comes now; the forged ones are acked."""
        got = await self.runtime.receive(
            NAME, ReceiveRequest(max=100, wait_ms=1_000, lease_ms=60_000)
        )
        forged = [each for each in got.messages if each.record.value == b"forged"]
        self.forged += len(forged)
        await self.ack(forged)
        return [each for each in got.messages if each.record.value != b"forged"]

    async def ack(self, messages: Sequence[Delivery]) -> None:
        results = await self.runtime.settle(
            [SettleItem(each.lease, SettleVerb.ACK) for each in messages]
        )
        assert {each.status.value for each in results} <= {"acked"}

    async def takes(self, values: set[bytes]) -> None:
        """All of them come and are acked."""

        async def came() -> bool:
            found = await self.next()
            await self.ack(found)
            values.difference_update({each.record.value or b"" for each in found})
            return not values

        await wait_until_async(came, "the messages of others", timeout_s=60)

    async def holds(self) -> Delivery:
        """One message, sent back to the retry topic under its lease, behind what is there."""
        await self.publish(self.topic, [(b"held", ())])
        found = await self.next()
        while not found:
            found = await self.next()
        [held] = found
        moves = self.runtime.metrics.retry_topic_moves
        await self.publish(self.topic, [(b"behind", ())])
        await self.takes({b"behind"})

        async def moved() -> bool:
            return sum(moves.at(NAME, why).value for why in ("age", "span", "records")) > 0

        await wait_until_async(moved, "the message to be sent back", timeout_s=30)
        return held

    async def goes_on(self, held: Delivery) -> None:
        """What is new comes, and what was sent back comes after its lease."""
        values = {b"%d" % number for number in range(REAL)}
        await self.publish(self.topic, [(each, ()) for each in values])
        await self.takes(set(values))
        await self.runtime.settle([SettleItem(held.lease, SettleVerb.RETRY, delay_ms=0)])
        await self.takes({b"held"})
        assert not self.runtime.vitals.failure
        assert all(reason.ok for reason in self.runtime.readiness())


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        worker = await Shop(stack, tmp_path, "embedded").start("one", **STUCK)
        yield Bench(worker.runtime, worker.shop.topic)


@pytest.fixture
async def on_kafka(start: StartSidecar, topic: Callable[..., str]) -> Bench:
    name = topic()
    sidecar = await start(name, name, **STUCK)
    return Bench(sidecar.runtime, name)


async def test_each_field_wrong_in_each_way_stops_nothing(embedded: Bench) -> None:
    await each_field(embedded)


async def test_copies_that_are_wrong_by_seed_stop_nothing(
    embedded: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await by_seeds(embedded, caplog)


@pytest.mark.kafka
async def test_each_field_wrong_in_each_way_stops_nothing_on_kafka(on_kafka: Bench) -> None:
    await each_field(on_kafka)


@pytest.mark.kafka
async def test_copies_that_are_wrong_by_seed_stop_nothing_on_kafka(
    on_kafka: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await by_seeds(on_kafka, caplog)


async def each_field(bench: Bench) -> None:
    ways = list(one_by_one(right(bench.runtime, bench.topic), huge=HUGE))
    assert len(ways) > 150
    few = [headers for name, headers in ways if "KiB" not in name]
    await bench.forge(few)
    for name, headers in ways:
        if "KiB" in name:
            await bench.forge([headers])
    await bench.goes_on(await bench.holds())


async def by_seeds(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    base = right(bench.runtime, bench.topic)
    with caplog.at_level(logging.ERROR):
        await bench.forge([by_seed(seed, base) for seed in range(SEEDS)])
        await bench.goes_on(await bench.holds())
    assert not [each.message for each in caplog.records]
    claims = bench.runtime.metrics.claims
    assert claims.at(NAME, "foreign").value > SEEDS // 3
