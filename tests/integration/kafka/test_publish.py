"""Publishing: what is stored where, and how sure a failure is (rule R20)."""

import asyncio

import pytest
from confluent_kafka import KafkaError, murmur2

from ackd.core.ids import TopicPartition
from ackd.ports import Broker, Failure, NotStored, Outgoing, Stored
from ackd_adapters.kafka import KafkaBroker, adapter
from ackd_adapters.kafka import KafkaOptions as AdapterOptions
from tests.conftest import KafkaFactory
from tests.integration.kafka.conftest import Connect, Join, MakeTopic
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.kafka.fill import store
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.kafka


async def has_condition(broker: Broker, kind: str | None) -> bool:
    """Whether there is a condition of publishing of this kind; None = whether there is none."""
    codes = [condition.code for condition in broker.conditions()]
    return not codes if kind is None else any(f"publish/{kind}/" in code for code in codes)


async def test_results_are_in_the_order_of_the_messages(broker: Broker, topic: MakeTopic) -> None:
    name = topic(3)
    stored = await store(broker, *(Outgoing(name, None, b"x", (), each % 3) for each in range(300)))
    assert [each.partition for each in stored] == [each % 3 for each in range(300)]
    assert [each.offset for each in stored] == [each // 3 for each in range(300)]
    assert {each.topic for each in stored} == {name}
    assert await broker.publish([]) == []


async def test_r20_key_goes_where_javas_clients_send_it(broker: Broker, topic: MakeTopic) -> None:
    name = topic(7)
    keys = [b"", b"a", b"order-2101", "clé".encode(), bytes(range(256))]
    stored = await store(broker, *(Outgoing(name, key, b"x") for key in keys))
    # Java: (murmur2(key) & 0x7fffffff) % partitions; Kafka's own tests have "21" -> -973932308.
    assert murmur2(b"21", 1_000_003) == (-973932308 & 0x7FFFFFFF) % 1_000_003
    assert [each.partition for each in stored] == [murmur2(key, 7) for key in keys]
    keyless = await store(broker, *(Outgoing(name, None, b"%d" % n) for n in range(50)))
    again = []
    for _ in range(20):
        again += await store(broker, Outgoing(name, None, b"x"))
    assert len({each.partition for each in [*keyless, *again]}) > 1


async def test_refusals_are_told_apart(broker: Broker, topic: MakeTopic) -> None:
    small = topic(max_message_bytes="2000")
    name = topic()
    results = await broker.publish(
        [
            Outgoing(name, None, b"x" * (broker.capabilities.value_bytes_max + 1000)),
            Outgoing(small, None, b"x" * 5000),
            Outgoing("no-such-topic", None, b"x"),
            Outgoing(name, None, b"x", (), 99),
            Outgoing(name, None, b"x", (), None, 1000),
            Outgoing("bad name!", None, b"x"),
            Outgoing(name, None, b"good"),
        ]
    )
    assert isinstance(results[-1], Stored)
    codes = []
    for each in results[:-1]:
        assert isinstance(each, NotStored)
        assert each.failure is Failure.REFUSED, each
        codes.append(each.code)
    assert codes[:2] == ["MSG_SIZE_TOO_LARGE", "MSG_SIZE_TOO_LARGE"]
    assert codes[2] in {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC"}
    assert codes[3] == "UNKNOWN_PARTITION"
    assert codes[4] == "NOT_SUPPORTED"


async def test_producer_with_a_fatal_error_is_replaced(
    broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    await store(broker, Outgoing(name, None, b"before", (), 0))
    assert isinstance(broker, KafkaBroker)
    producer = broker._publisher._producer
    assert producer is not None
    fatal = KafkaError(KafkaError._FATAL, "planted", fatal=True)
    producer.commands.put(lambda: producer.health.on_error(fatal))
    await wait_until_async(lambda: has_condition(broker, "fatal"), "the error is told")
    await store(broker, Outgoing(name, None, b"after", (), 0))
    assert broker._publisher._producer is not producer
    assert not broker.conditions()
    reader = await join(broker, [name], name)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 2), "both")


async def test_large_message_passes_whole(connect: Connect, join: Join, topic: MakeTopic) -> None:
    name = topic(max_message_bytes="9000000")
    where = TopicPartition(name, 0)
    broker = await connect(message_bytes_max=9_000_000)
    big = bytes(range(256)) * 32_000
    await store(broker, Outgoing(name, b"k", big), Outgoing(name, b"k", b"after"))
    reader = await join(broker, [name], name)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 2), "both")
    assert [record.value for record in reader.records[where]] == [big, b"after"]


@pytest.mark.slow
async def test_i8_frozen_broker_gives_pressure_then_unknown(own_kafka: KafkaFactory) -> None:
    own = await asyncio.to_thread(own_kafka, KafkaOptions())
    name = await asyncio.to_thread(own.create_topic, "frozen")
    broker = adapter.open(
        "frozen",
        AdapterOptions(
            bootstrap_servers=own.bootstrap,
            publish_timeout_ms=8000,
            publish_records_max=10,
            properties={"socket.timeout.ms": "3000"},
        ),
    )
    await broker.start()
    try:
        await store(broker, Outgoing(name, None, b"before", (), 0))
        own.node.freeze()
        results = await broker.publish([Outgoing(name, None, b"%d" % n, (), 0) for n in range(15)])
        failures = [each.failure for each in results if isinstance(each, NotStored)]
        assert failures == [Failure.UNKNOWN] * 10 + [Failure.PRESSURE] * 5
        await wait_until_async(lambda: has_condition(broker, "connection"), "trouble is told")
        own.node.thaw()
        # The broker may have got some of them: that is what UNKNOWN says. New ones are stored.
        await store(broker, Outgoing(name, None, b"after", (), 0))
        await wait_until_async(lambda: has_condition(broker, None), "trouble is over")
    finally:
        own.node.thaw()
        await broker.close()


async def test_cancelled_publish_recalls_nothing(
    broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(broker.publish([Outgoing(name, None, b"cut", (), 0)]))
        await asyncio.sleep(0)
        task.cancel()
    await store(broker, Outgoing(name, None, b"next", (), 0))
    reader = await join(broker, [name], name)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 2), "both")
    assert [record.value for record in reader.records[where]] == [b"cut", b"next"]


async def test_close_sends_what_was_accepted(
    broker: Broker, connect: Connect, join: Join, topic: MakeTopic
) -> None:
    name = topic()
    where = TopicPartition(name, 0)
    slow = await connect(publish_linger_ms=1000)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            slow.publish([Outgoing(name, None, b"%d" % n, (), 0) for n in range(100)])
        )
        await asyncio.sleep(0)
        await slow.close()
    assert all(isinstance(each, Stored) for each in task.result())
    (closed,) = await slow.publish([Outgoing(name, None, b"late")])
    assert isinstance(closed, NotStored)
    assert closed.failure is Failure.NOT_STORED
    reader = await join(broker, [name], name)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 100), "all")


async def test_r25_own_topics_are_made_as_told(
    kafka: Kafka, broker: Broker, topic: MakeTopic
) -> None:
    name = topic() + ".made"
    assert await broker.partitions(name) is None
    settings = {"partitions": "5", "replication_factor": "1", "retention.ms": "777000"}
    await broker.ensure_topic(name, settings)
    assert await broker.partitions(name) == 5
    await broker.ensure_topic(name, {"partitions": "9"})
    assert await broker.partitions(name) == 5
    await store(broker, Outgoing(name, None, b"x", (), 4))
    assert len(await broker.cluster_id()) == 22
    assert kafka.admin().cluster_id(60) == await broker.cluster_id()
