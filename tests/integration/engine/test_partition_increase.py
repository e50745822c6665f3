"""R19, I6: partitions that are added to a topic wait for the older ones."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka.cimpl import NewPartitions

from ackd.api.messages import Delivery, SettleVerb
from ackd.core.ids import TopicPartition
from ackd.engine.ownership import ownership
from ackd.ports import Outgoing, Stored
from tests.integration.engine.conftest import NAME, Sidecar, StartSidecar
from tests.support.kafka import Kafka
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]
ORDERED = {"ordering": "key", "on_partition_increase": "drain"}


async def publish(sidecar: Sidecar, topic: str, partition: int, keys: Sequence[bytes]) -> None:
    """One message of each key."""
    batch = [Outgoing(topic, key, b"x", (), partition) for key in keys]

    async def stored() -> bool:
        done = await sidecar.runtime._brokers["k"].publish(batch)
        return all(isinstance(each, Stored) for each in done)

    # A new partition is unknown to the producer for a moment; then nothing is stored.
    await wait_until_async(stored, "the messages to be stored", timeout_s=60)


async def grow(kafka: Kafka, topic: str, partitions: int) -> None:
    """The topic gets more partitions."""
    asked = kafka.admin().create_partitions([NewPartitions(topic, partitions)])
    await asyncio.to_thread(asked[topic].result, 60)


async def waits(sidecar: Sidecar) -> None:
    """It says that a new partition waits, and is ready all the same."""

    async def told() -> bool:
        [reason] = [r for r in sidecar.runtime.readiness() if r.name == f"subscription:{NAME}"]
        return reason.ok and "1 new partitions wait" in reason.detail

    await wait_until_async(told, "readiness to say that a new partition waits", timeout_s=60)
    assert any("new partitions wait" in each for each in (await explain(sidecar)))


async def explain(sidecar: Sidecar) -> list[str]:
    """What limits it."""
    return (await sidecar.runtime.explain(NAME)).limits


async def collect(sidecar: Sidecar, count: int) -> list[Delivery]:
    """So many messages."""
    found: list[Delivery] = []

    async def there() -> bool:
        found.extend(await sidecar.receive(count - len(found), wait_ms=500))
        return len(found) == count

    await wait_until_async(there, f"{count} messages", timeout_s=60)
    return found


async def test_new_partitions_wait_for_the_older_ones_across_a_restart(
    kafka: Kafka,
    start: StartSidecar,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while the only thing that is not over in them is under lease."""
    monkeypatch.setattr(ownership, "RETAKE_MS", 300)
    name = topic(1)
    first = await start(name, name, **ORDERED)
    await publish(first, name, 0, [b"a", b"b"])
    held = await collect(first, 2)
    await grow(kafka, name, 2)
    await publish(first, name, 1, [b"a", b"c"])
    await waits(first)
    await first.settle(held[:1], SettleVerb.ACK)
    await first.runtime.stop()

    second = await start(name, name, **ORDERED)
    await waits(second)
    assert await second.receive(wait_ms=1_500) == []
    await second.settle(held[1:], SettleVerb.ACK)
    new = await collect(second, 2)
    assert {(each.partition, each.record.key) for each in new} == {(1, b"a"), (1, b"c")}
    assert not any("new partitions" in each for each in await explain(second))
    assert TopicPartition(name, 1) in second.runtime._subscriptions[NAME].partitions.owned


async def test_without_the_setting_they_are_delivered_at_once(
    kafka: Kafka, start: StartSidecar, topic: Callable[..., str]
) -> None:
    name = topic(1)
    sidecar = await start(name, name, ordering="key")
    await publish(sidecar, name, 0, [b"a"])
    await collect(sidecar, 1)
    await grow(kafka, name, 2)
    await publish(sidecar, name, 1, [b"a"])
    [new] = await collect(sidecar, 1)
    assert new.partition == 1
