"""A connection of the adapter to the shared Kafka, topics of one's own, and a way to fill them."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import pytest

from ackd.ports import Broker, Consumer, ConsumerSpec
from ackd_adapters.kafka import KafkaOptions, adapter
from ackd_testing import Reader
from tests.support.kafka import Kafka

REFRESH_MS = 500
Connect = Callable[..., Awaitable[Broker]]
Join = Callable[..., Awaitable[Reader]]
MakeTopic = Callable[..., str]

_numbers = itertools.count(1)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What is opened here is closed at the end of the test, last one first."""
    async with AsyncExitStack() as opened:
        yield opened


@pytest.fixture
def connect(kafka: Kafka, stack: AsyncExitStack) -> Connect:
    """Open a connection with these options; closed at the end."""

    async def opened(**options: object) -> Broker:
        given = {"bootstrap_servers": kafka.bootstrap, "topics_refresh_ms": REFRESH_MS} | options
        broker = adapter.open("test", KafkaOptions(**given))  # type: ignore[arg-type]
        stack.push_async_callback(broker.close)
        await broker.start()
        return broker

    return opened


@pytest.fixture
async def broker(connect: Connect) -> Broker:
    """A connection with default options, but quick to see new topics."""
    return await connect()


@pytest.fixture
def join(stack: AsyncExitStack) -> Join:
    """Make and start a consumer; closed at the end."""

    async def joined(
        broker: Broker,
        topics: Sequence[str],
        group: str,
        *,
        static_id: str | None = None,
        **options: str,
    ) -> Reader:
        client_id = f"c{next(_numbers)}"
        spec = ConsumerSpec(group, tuple(topics), client_id, static_id, options)
        consumer: Consumer = broker.consumer(spec)
        stack.push_async_callback(consumer.close)
        await consumer.start()
        return Reader(consumer)

    return joined


@pytest.fixture
def topic(kafka: Kafka, request: pytest.FixtureRequest) -> MakeTopic:
    """Make a topic with a name of its own."""
    base = request.node.name.split("[")[0].removeprefix("test_")[:60]

    def made(partitions: int = 1, *, kafka_: Kafka = kafka, **config: str) -> str:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        name = f"{base}.{next(_numbers)}"
        return kafka_.create_topic(name, partitions=partitions, config=settings)

    return made
