"""The broker dies, freezes or is cut off: told, then over; nothing lost or twice in a session."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Broker, Committed, Fetched, Outgoing, Stored
from ackd_adapters.kafka import KafkaOptions, adapter
from ackd_adapters.kafka.admin import AdminQuestions
from ackd_adapters.kafka.operator import topic_settings
from ackd_testing import Reader
from tests.integration.kafka.conftest import Join
from tests.support import kafka as kafka_support
from tests.support.kafka import Kafka
from tests.support.kafka import KafkaOptions as BrokerOptions
from tests.support.kafka.fill import store
from tests.support.require import require
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def fragile() -> Iterator[Kafka]:
    """A Kafka behind a proxy that the tests of this file may hurt."""
    require(kafka_support.missing())
    with Kafka(BrokerOptions(proxied=True)) as started:
        yield started


@asynccontextmanager
async def connected(fragile: Kafka, socket_timeout_ms: int) -> AsyncIterator[Broker]:
    """A connection through the proxy; what hurts the broker is over before it is closed."""
    broker = adapter.open(
        "proxied",
        KafkaOptions(
            bootstrap_servers=fragile.proxied_bootstrap,
            topics_refresh_ms=500,
            request_timeout_ms=2000,
            publish_timeout_ms=120_000,
            properties={"socket.timeout.ms": f"{socket_timeout_ms}"},
        ),
    )
    await broker.start()
    try:
        yield broker
    finally:
        fragile.node.thaw()
        fragile.proxies[0].heal()
        await broker.close()


@pytest.fixture
async def proxied(fragile: Kafka) -> AsyncIterator[Broker]:
    """A client that notices a silent broker after 2 s."""
    async with connected(fragile, socket_timeout_ms=2000) as broker:
        yield broker


@pytest.fixture
async def patient(fragile: Kafka) -> AsyncIterator[Broker]:
    """A client that never notices a silent broker by itself while a test runs."""
    async with connected(fragile, socket_timeout_ms=300_000) as broker:
        yield broker


class Stream:
    """Publishes numbers one after the other until told to stop, and reads them at the same time."""

    def __init__(self, broker: Broker, reader: Reader, where: TopicPartition) -> None:
        self.broker = broker
        self.reader = reader
        self.where = where
        self.stored: dict[int, int] = {}
        self.stopped = False

    async def write(self) -> None:
        """One message at a time, so that offsets and numbers go together."""
        number = 0
        while not self.stopped:
            body = b"%d" % number
            (result,) = await self.broker.publish([Outgoing(self.where.topic, None, body, (), 0)])
            assert isinstance(result, Stored), result
            self.stored[result.offset] = number
            number += 1
            await asyncio.sleep(0.005)

    def check(self) -> None:
        """Every stored number exactly once, at its offset, all in one session."""
        records = self.reader.records[self.where]
        assert {record.offset: int(record.value or b"") for record in records} == self.stored
        assert len(records) == len(self.stored)
        sessions = {event.session for event in self.reader.of(Fetched)}
        assert len(sessions) == 1


async def run_through(broker: Broker, join: Join, fragile: Kafka, name: str, fault: str) -> Stream:
    """Publish and read while the fault happens; both clients tell, and both say that it is over."""
    topic = await asyncio.to_thread(fragile.create_topic, name)
    where = TopicPartition(topic, 0)
    reader = await join(broker, [topic], topic)
    await reader.until(lambda: reader.assigned, "assigned")
    reader.fetch_from(where, 0)
    stream = Stream(broker, reader, where)
    async with asyncio.TaskGroup() as group:
        group.create_task(stream.write())
        await reader.until(lambda: len(reader.records[where]) > 50, "records before the fault")
        begin, end = {
            "kill": (fragile.node.kill, fragile.node.start),
            "freeze": (fragile.node.freeze, fragile.node.thaw),
            "cut": (fragile.proxies[0].refuse, fragile.proxies[0].heal),
            "silence": (fragile.proxies[0].freeze, fragile.proxies[0].heal),
        }[fault]
        await asyncio.to_thread(begin)
        await reader.until(
            lambda: reader.condition("fetch/connection") and reader.condition("member/connection"),
            "trouble",
        )
        with pytest.raises(BrokerError):
            await reader.consumer.log_range(where)
        await asyncio.to_thread(end)
        seen = len(reader.records[where])
        await reader.until(
            lambda: len(reader.records[where]) > seen + 50, "records after the fault"
        )
        await reader.until(
            lambda: (
                reader.condition("fetch/connection", cleared=True)
                and reader.condition("member/connection", cleared=True)
            ),
            "trouble is over",
        )
        stream.stopped = True
    last = max(stream.stored) + 1
    await reader.until(lambda: reader.ended(where, last), "the end")
    stream.check()
    await reader.until(lambda: reader.assigned == {where}, "assigned again")
    await reader.consumer.commit({where: Committed(last, fault)})
    assert (await reader.consumer.committed([where]))[where] == Committed(last, fault)
    return stream


async def no_condition(broker: Broker) -> bool:
    """Whether the connection itself is well."""
    return not broker.conditions()


@pytest.mark.parametrize("fault", ["kill", "freeze", "cut", "silence"])
async def test_nothing_is_lost_or_twice_and_trouble_is_told(
    proxied: Broker, join: Join, fragile: Kafka, fault: str
) -> None:
    stream = await run_through(proxied, join, fragile, f"fault.{fault}", fault)
    await wait_until_async(lambda: no_condition(proxied), "the producer's trouble is over")
    assert len(stream.stored) > 100


async def test_commit_to_a_silent_broker_ends_and_close_is_bounded(
    patient: Broker, join: Join, fragile: Kafka
) -> None:
    topic = await asyncio.to_thread(fragile.create_topic, "silent.commit")
    where = TopicPartition(topic, 0)
    reader = await join(patient, [topic], topic)
    await reader.until(lambda: reader.assigned, "assigned")
    fragile.proxies[0].freeze()
    # The client itself would wait for five minutes: what ends within 20 s is bounded by ackd.
    async with asyncio.timeout(20):
        with pytest.raises(BrokerError, match="in time"):
            await reader.consumer.commit({where: Committed(1, "")})
    # A second one must not overtake the first, which may still arrive.
    async with asyncio.timeout(20):
        with pytest.raises(BrokerError, match="earlier"):
            await reader.consumer.commit({where: Committed(2, "")})
    async with asyncio.timeout(20):
        await reader.consumer.close()


async def test_an_admin_client_that_gets_no_answer_is_replaced(fragile: Kafka) -> None:
    """One whose broker was frozen while it connected may wait for the controller for ever."""
    topic = await asyncio.to_thread(fragile.create_topic, "renewed")
    proxy = fragile.proxies[0]
    proxy.freeze()
    options = KafkaOptions(bootstrap_servers=fragile.proxied_bootstrap, request_timeout_ms=1000)
    admin = AdminQuestions(options)
    try:
        await admin.start()
        first = admin.client
        with pytest.raises(BrokerError, match="controller"):
            await topic_settings(admin, topic, 1.0)
        second = admin.client
        assert second is not first
        with pytest.raises(BrokerError, match="controller"):
            await topic_settings(admin, topic, 1.0)
        assert admin.client is second, "not a new client for each question"
        proxy.heal()

        async def answers() -> bool:
            try:
                return "retention.ms" in await topic_settings(admin, topic, 1.0)
            except BrokerError:
                return False

        await wait_until_async(answers, "the new client is answered")
    finally:
        proxy.heal()
        admin.close()


async def test_lost_is_told_when_the_session_ended(
    proxied: Broker, join: Join, fragile: Kafka
) -> None:
    topic = await asyncio.to_thread(fragile.create_topic, "session.ended")
    where = TopicPartition(topic, 0)
    await store(proxied, Outgoing(topic, None, b"x", (), 0))
    reader = await join(proxied, [topic], topic, **{"session.timeout.ms": "3000"})
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.assigned and reader.ended(where, 1), "assigned and read")
    fragile.node.freeze()
    await reader.during(4)
    fragile.node.thaw()
    await reader.until(
        lambda: any(type(event).__name__ == "Lost" for event in reader.events), "lost"
    )
    await reader.until(lambda: reader.assigned, "assigned anew")
    await store(proxied, Outgoing(topic, None, b"y", (), 0))
    await reader.until(lambda: reader.ended(where, 2), "the same session goes on")
    assert reader.offsets(where) == [0, 1]
