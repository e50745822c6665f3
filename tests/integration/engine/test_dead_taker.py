"""A sidecar dies right after it has taken a partition from another one, before any heartbeat of it
says so. Nobody waits for the broker's group, which takes its time (R5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from ackd.api.messages import SettleVerb
from ackd.core.ids import TopicPartition
from ackd.core.record.protocol import CallStatus, Open
from tests.integration.engine.linked import KAFKA, NAME, Ring, numbers, ring_of
from tests.support.limits import limit
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]
SILENCE_MS = limit(3_000, busy=20_000)


@pytest.fixture
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    async with ring_of(request, partitions=2) as made:
        yield made


@contextmanager
def plain_member(ring: Ring) -> Iterator[set[TopicPartition]]:
    """A consumer that is no sidecar takes part in the group; what the group gave it."""
    assert ring.kafka is not None
    given: set[TopicPartition] = set()
    over = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": ring.kafka.bootstrap,
            "group.id": ring.topic,
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )

    def run() -> None:
        while not over.is_set():
            consumer.poll(0.1)
            given.update(TopicPartition(p.topic, p.partition) for p in consumer.assignment())

    consumer.subscribe([ring.topic])
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield given
    finally:
        over.set()
        thread.join()
        consumer.close()


@pytest.mark.parametrize("ring", [KAFKA], indirect=True)
async def test_what_a_dead_sidecar_took_is_delivered_on(ring: Ring) -> None:
    """The group has moved a partition to somebody who does nothing, so the sidecar that had it
    delivers on, and is no member for it. Then another one raises the term, and is heard of no more.
    """
    linked = await ring.start()
    subscription = linked.runtime._subscriptions[NAME]

    with plain_member(ring) as given:

        async def taken_back() -> bool:
            return (
                bool(given)
                and ring.partition.topic in {at.topic for at in given}
                and (given <= linked.owned - set(subscription.partitions.assigned))
            )

        await wait_until_async(taken_back, "a moved partition to be taken back", timeout_s=90)
        (moved,) = given
        partition = subscription.partitions.owned[moved]
        dead = Open(partition.key, "dead/1", rollback_epoch=1, incarnation=1, grace_ms=0)
        assert (await linked.runtime._store.open(dead)).verdict is CallStatus.OK
        began_s = time.monotonic()
        await linked.publish(1, first=moved.partition)  # into that partition
        message = await linked.one(wait_ms=60_000)
        took_ms = (time.monotonic() - began_s) * 1000
        print(f"delivered after {took_ms:.0f} ms")  # noqa: T201
        assert numbers([message]) == [moved.partition]
        assert await linked.settle([message], SettleVerb.ACK) == ["acked"]
        assert moved not in subscription.partitions.assigned
        assert took_ms <= SILENCE_MS
