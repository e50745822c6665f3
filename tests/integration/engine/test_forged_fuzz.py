"""One bad message stops nothing: forged copies in the retry topic, each field wrong in each way and
by the hundred from seeds, on every broker. What ackd can't have written is put aside.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ackd.api.dead_letters import DeadView
from ackd.api.messages import Delivery, ReceiveRequest, SettleItem, SettleVerb
from ackd.config.peers import PeerSettings
from ackd.core.ids import TOPIC_ID_BYTES
from ackd.core.origin import Origin
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.retry.copier import DEAD
from ackd.engine.runtime import Runtime
from ackd.ports import Failure, Headers, NotStored, Outgoing, Stored
from tests.integration.engine.linked import KAFKA, PULSAR, ROCKETMQ, ring_of
from tests.integration.engine.shop import NAME, Shop
from tests.integration.rocketmq.shop import Shop as RocketMQShop
from tests.support.forged import by_seed, one_by_one
from tests.support.wait import wait_until_async

SEEDS = 300
BATCH = 50
REAL = 30
FAR = 1 << 40
"""No message of these tests has this offset: what parses claims nothing that is real."""
HUGE = b"9" * (700 << 10)
STUCK: dict[str, Any] = {"retry_topic": True, "stuck_after_ms": 1_000, "stuck_min_age_ms": 1_000}


def right(runtime: Runtime, topic: str) -> Headers:
    """What ackd itself could have written."""
    state = runtime._subscriptions[NAME].state
    known = runtime._subscriptions[NAME].topics.known.get(topic)
    topic_id = bytes(TOPIC_ID_BYTES) if known is None else known.topic_id  # RocketMQ has none
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
        self.stored = 0

    async def publish(self, topic: str, messages: Sequence[tuple[bytes, Headers]]) -> None:
        sent = [self._sent(topic, value, headers) for value, headers in messages]
        assert all(isinstance(each, Stored) for each in await self.broker.publish(sent))

    def _sent(self, topic: str, value: bytes, headers: Headers) -> Outgoing:
        chosen = self.broker.capabilities.explicit_partition
        return Outgoing(topic, None, value, headers, partition=0 if chosen else None)

    async def forge(self, copies: Sequence[Headers]) -> None:
        """Write to the retry topic as any producer of the broker can: all that the broker has a
        form for.
        """
        topic = self.topic
        if not self.broker.capabilities.broker_side_acks:  # else there is no retry topic
            topic = self.runtime._subscriptions[NAME].retry_topic.topic.name
        for start in range(0, len(copies), BATCH):
            left = [self._sent(topic, b"forged", each) for each in copies[start : start + BATCH]]

            async def stored(left: list[Outgoing] = left) -> bool:
                said = await self.broker.publish(left)
                self.stored += sum(isinstance(each, Stored) for each in said)
                busy = (Failure.NOT_STORED, Failure.PRESSURE)
                left[:] = [
                    sent
                    for sent, each in zip(left, said, strict=True)
                    if isinstance(each, NotStored) and each.failure in busy
                ]
                return not left

            await wait_until_async(stored, "forged copies to be stored", timeout_s=60)

    async def next(self) -> list[Delivery]:
        """What comes now; the forged ones are acked."""
        got = await self.runtime.receive(
            NAME, ReceiveRequest(max=100, wait_ms=1_000, lease_ms=60_000)
        )
        forged = [each for each in got.messages if each.record.value == b"forged"]
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

    async def holds(self) -> Delivery | None:
        """One message, sent back to the retry topic under its lease, behind what is there. Where
        the broker keeps an ack of each message, none has to move.
        """
        if self.broker.capabilities.broker_side_acks:
            return None
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

    async def put_aside(self) -> None:
        """All that ackd can't have written is a dead letter, and says why. Where there is no retry
        topic the same headers are an application's own, and say nothing to ackd.
        """
        claims, copies = self.runtime.metrics.claims, self.runtime.metrics.copies
        found: dict[str, DeadView] = {}
        if self.broker.capabilities.broker_side_acks:
            assert claims.at(NAME, "aside").value == 0
            return

        async def there() -> bool:
            await self.ack(await self.next())
            aside = claims.at(NAME, "aside").value
            if copies.at(NAME, DEAD.name, "stored").value != aside or aside <= self.stored // 3:
                return False
            page = await self.runtime.dead.page(NAME, None, 1_000)
            while True:
                found.update({each.id: each for each in page.messages})
                if page.cursor is None:
                    return len(found) == aside
                page = await self.runtime.dead.page(NAME, page.cursor, 1_000)

        await wait_until_async(there, "what was put aside to be dead letters", timeout_s=120)
        reasons = {each.reason.partition(":")[0] for each in found.values()}
        assert {"not written by ackd"} <= reasons <= {"not written by ackd", "not-signed"}

    async def goes_on(self, held: Delivery | None) -> None:
        """What is new comes, and what was sent back comes after its lease."""
        values = {b"%d" % number for number in range(REAL)}
        await self.publish(self.topic, [(each, ()) for each in values])
        await self.takes(set(values))
        if held is not None:
            await self.runtime.settle([SettleItem(held.lease, SettleVerb.RETRY, delay_ms=0)])
            await self.takes({b"held"})
        await self.put_aside()
        assert not self.runtime.vitals.failure
        assert all(reason.ok for reason in self.runtime.readiness())


@pytest.fixture(params=["embedded", KAFKA, PULSAR, ROCKETMQ])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        if request.param == "embedded":
            worker = await Shop(stack, tmp_path, "embedded").start("one", **STUCK)
            yield Bench(worker.runtime, worker.shop.topic)
            return
        if request.param == "rocketmq":
            servers = [request.getfixturevalue(name) for name in ("rocketmq", "valkey")]
            shop = RocketMQShop(stack, tmp_path, *servers)
            await shop.open(1)
            runtime = (await shop.start(start="earliest", **STUCK)).runtime
            yield Bench(runtime, shop.topic)
            return
        ring = await stack.enter_async_context(ring_of(request))
        runtime = (await ring.start(PeerSettings(on=False), **STUCK)).runtime
        yield Bench(runtime, ring.topic)


async def test_each_field_wrong_in_each_way_stops_nothing(bench: Bench) -> None:
    ways = list(one_by_one(right(bench.runtime, bench.topic), huge=HUGE))
    assert len(ways) > 150
    few = [headers for name, headers in ways if "KiB" not in name]
    await bench.forge(few)
    for name, headers in ways:
        if "KiB" in name:
            await bench.forge([headers])
    await bench.goes_on(await bench.holds())


async def test_copies_that_are_wrong_by_seed_stop_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    base = right(bench.runtime, bench.topic)
    with caplog.at_level(logging.ERROR):
        await bench.forge([by_seed(seed, base) for seed in range(SEEDS)])
        await bench.goes_on(await bench.holds())
    assert not [each.message for each in caplog.records]
