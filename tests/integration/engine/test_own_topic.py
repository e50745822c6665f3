"""R25: the retry topic as it really is, and copies that a pattern takes in, on a real Kafka."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from ackd.core.origin import Origin
from ackd.engine.partition.copy_headers import RetryCopy, retry_copy_headers
from ackd.engine.retry import own_topic
from ackd.engine.retry.own_settings import ADDED_BYTES
from ackd.errors import BrokerError
from ackd.ports import TopicLook
from ackd.ports.own_topics import retry_topic
from tests.integration.engine.conftest import NAME, Sidecar, StartSidecar
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
MakeTopic = Callable[..., str]
WEEK_MS = 7 * 86_400_000


def retries(group: str) -> str:
    """The name of the retry topic."""
    return retry_topic(f"{group}~{NAME}")


def change(kafka: Kafka, topic: str, name: str, value: str) -> None:
    """Alter a topic's setting."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    for future in kafka.admin().incremental_alter_configs([resource]).values():
        future.result(60)


def detail(sidecar: Sidecar) -> tuple[bool, str]:
    """What readiness says of the subscription."""
    (found,) = [r for r in sidecar.runtime.readiness() if r.name == f"subscription:{NAME}"]
    return found.ok, found.detail


async def test_it_is_made_with_room_for_our_headers(
    kafka: Kafka,  # noqa: ARG001 -- started before the sidecar
    start: StartSidecar,
    topic: MakeTopic,
) -> None:
    """Kept by age alone, never compacted, and larger messages than its origin takes."""
    name = topic(1, max_message_bytes="300000")
    sidecar = await start(name, name, retry_topic=True)
    broker = sidecar.runtime._brokers["k"]
    assert isinstance(broker, TopicLook)
    made = await broker.topic_settings(retries(name))
    assert made["cleanup.policy"] == "delete"
    assert made["max.message.bytes"] == str(300_000 + ADDED_BYTES)
    assert made["retention.ms"] == str(2 * WEEK_MS)
    assert detail(sidecar) == (True, "")
    assert await broker.topic_settings("no-such-topic") == {}


async def test_one_that_forgets_copies_too_early_is_told(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    """Somebody made it with an hour; the schedule waits two. It is told and holds nothing back."""
    name = topic(1)
    kafka.create_topic(
        retries(name),
        partitions=2,
        config={"retention.ms": "3600000", "retention.bytes": "1000000"},
    )
    sidecar = await start(name, name, retry_topic=True)
    ok, said = detail(sidecar)
    assert ok
    assert "keeps copies for 1h (retention.ms), and they may wait 2h" in said
    assert "retention.bytes = 1000000" in said
    assert "(max.message.bytes)" not in said, "that much ackd mends itself"


async def test_it_grows_with_a_topic_that_is_made_after_it(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again when that takes longer messages later."""
    monkeypatch.setattr(own_topic, "LOOK_EVERY_MS", 200)
    late = f"late-{topic(1)}"
    sidecar = await start(late, late, wait=False, retry_topic=True)
    broker = sidecar.runtime._brokers["k"]
    assert isinstance(broker, TopicLook)

    async def size() -> int:
        with suppress(BrokerError):  # it is not connected yet
            return int((await broker.topic_settings(retries(late))).get("max.message.bytes", 0))
        return 0

    async def there() -> bool:
        return await size() > 0

    async def widened() -> bool:
        return await size() == wanted + ADDED_BYTES

    await wait_until_async(there, "the retry topic is made")
    wanted = 3_000_000
    kafka.create_topic(late, partitions=1, config={"max.message.bytes": str(wanted)})
    await wait_until_async(widened, "it grows with its topic")
    wanted = 4_000_000
    await asyncio.to_thread(change, kafka, late, "max.message.bytes", str(wanted))
    await wait_until_async(widened, "it grows again")

    async def silent() -> bool:
        return detail(sidecar) == (True, "")

    await wait_until_async(silent, "readiness has nothing to say")


async def test_a_compacted_one_is_refused_until_it_is_changed(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    """Compaction keeps one copy of a key: nothing is sent back to such a topic."""
    name = topic(1)
    kafka.create_topic(retries(name), partitions=1, config={"cleanup.policy": "compact"})
    quick = {"stuck_after_ms": 100, "stuck_min_age_ms": 100}
    sidecar = await start(name, name, wait=False, retry_topic=True, lease_ms=60_000, **quick)

    async def refused() -> bool:
        ok, said = detail(sidecar)
        return not ok and f"cleanup.policy of {retries(name)} is compact" in said

    await wait_until_async(refused, "readiness to say so")
    await asyncio.to_thread(fill, kafka.bootstrap, name, 0, [b"held"])
    assert len(await sidecar.receive(1, wait_ms=30_000)) == 1
    await asyncio.sleep(1)  # ten times what makes a message stuck
    assert sent_back(sidecar) == 0
    await asyncio.to_thread(change, kafka, retries(name), "cleanup.policy", "delete")

    async def sent() -> bool:
        return sent_back(sidecar) == 1

    await wait_until_async(sent, "the stuck message to be sent back")
    assert detail(sidecar)[0]


def sent_back(sidecar: Sidecar) -> float:
    """How often a message was."""
    registry = sidecar.runtime.metrics.registry
    labels = {"subscription": NAME, "reason": "age"}
    return registry.get_sample_value("ackd_retry_topic_moves_total", labels) or 0.0


async def test_copies_in_a_mirrored_topic_are_passed_over(
    kafka: Kafka, start: StartSidecar, topic: MakeTopic
) -> None:
    """By name a pattern takes in no topic of ours; under another name the header tells."""
    base = topic(1)
    mirror, own = f"{base}.mirror.ackd.retry.x", f"ackd.retry.{base}"
    for each in (mirror, own):
        kafka.create_topic(each, partitions=1)
    origin = Origin("elsewhere", bytes(16), "orders", 0, 7)
    retry_copy = RetryCopy(origin, "orders", 1, 2, 3, 1, 0, 0, 0)

    def produce() -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for number in range(10):
            headers = list(retry_copy_headers(retry_copy, ())) if number % 2 else []
            producer.produce(mirror, b"%d" % number, headers=headers, partition=0)  # type: ignore[arg-type]
        assert producer.flush(60) == 0

    await asyncio.to_thread(produce)
    await asyncio.to_thread(fill, kafka.bootstrap, own, 0, [b"own"])
    await asyncio.to_thread(fill, kafka.bootstrap, base, 0, [b"plain"])
    sidecar = await start(f"^(ackd.retry.)?{base}", base)
    assert sorted(await sidecar.drain()) == [0, 0, 2, 4, 6, 8]
    topics = {message.topic for message in sidecar.seen}
    assert topics == {base, mirror}
    left_out = partial(
        sidecar.runtime.metrics.registry.get_sample_value,
        "ackd_copies_ignored_total",
        {"subscription": NAME},
    )
    assert left_out() == 5

    async def past_them() -> bool:
        rows = await sidecar.runtime.lag(NAME)
        return {row.topic: row.committed for row in rows} == {base: 1, mirror: 10}

    await wait_until_async(past_them, "the position to pass over the copies")
