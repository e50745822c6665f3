"""A client's word that a message is stored, where the broker never took it (I1, R20)."""

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from ackd.core.ids import TopicPartition
from ackd.ports import Broker, Failure, NotStored, Outgoing, Stored
from ackd_adapters.kafka import KafkaOptions as AdapterOptions
from ackd_adapters.kafka import adapter
from tests.conftest import KafkaFactory
from tests.integration.kafka.conftest import Join
from tests.support.kafka import Kafka, KafkaOptions
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PRODUCE = 0
OVERTAKEN = b"overtaken"
SPOILT = b"OVERTAKEN"


class Overtaking:
    """On its way to the broker, one request to store OVERTAKEN is spoilt, and waits until the next
    one has come too: both are in flight, and only the second is taken.
    """

    def __init__(self) -> None:
        self.holds = False
        self.done = False

    def __call__(self) -> "_Connection":
        return _Connection(self)


class _Connection:
    """The requests of one connection."""

    def __init__(self, plan: Overtaking) -> None:
        self._plan = plan
        self._bytes = b""
        self._held = b""

    def __call__(self, chunk: bytes) -> bytes:
        """What goes on now."""
        self._bytes += chunk
        out = b""
        while len(self._bytes) >= 4:
            size = 4 + struct.unpack(">i", self._bytes[:4])[0]
            if len(self._bytes) < size:
                break
            frame, self._bytes = self._bytes[:size], self._bytes[size:]
            out += self._frame(frame)
        return out

    def _frame(self, frame: bytes) -> bytes:
        plan = self._plan
        produces = struct.unpack(">h", frame[4:6])[0] == PRODUCE
        if produces and OVERTAKEN in frame and not plan.holds and not plan.done:
            plan.holds = True
            self._held = frame.replace(OVERTAKEN, SPOILT)
            return b""
        if produces and self._held:
            plan.done = True
            frame, self._held = self._held + frame, b""
        return frame


@pytest.fixture
async def overtaking(own_kafka: KafkaFactory) -> AsyncIterator[tuple[Kafka, Broker, Overtaking]]:
    """A Kafka, the adapter's connection to it, and what happens between them."""
    own = await asyncio.to_thread(own_kafka, KafkaOptions(proxied=True))
    plan = Overtaking()
    own.proxies[0].edit(plan)
    broker = adapter.open("overtaken", AdapterOptions(bootstrap_servers=own.proxied_bootstrap))
    await broker.start()
    yield own, broker, plan
    await broker.close()


async def test_r20_a_message_that_a_later_one_overtook_is_not_called_stored(
    overtaking: tuple[Kafka, Broker, Overtaking], join: Join
) -> None:
    """The first batches of an idempotent producer in a partition: the broker refuses one, takes
    the next, as it knows no sequence of this producer yet, and the client concludes that both are
    stored.
    """
    own, broker, plan = overtaking
    name = await asyncio.to_thread(own.create_topic, "overtaken")
    where = TopicPartition(name, 0)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(broker.publish([Outgoing(name, None, OVERTAKEN, (), 0)]))

        async def held() -> bool:
            return plan.holds

        await wait_until_async(held, "the first request is on its way")
        second = group.create_task(broker.publish([Outgoing(name, None, b"later", (), 0)]))
    assert plan.done
    assert second.result() == [Stored(name, 0, 0)]
    (lost,) = first.result()
    assert isinstance(lost, NotStored)
    assert lost.failure is Failure.UNKNOWN
    (again,) = await broker.publish([Outgoing(name, None, OVERTAKEN, (), 0)])
    assert again == Stored(name, 0, 1)
    reader = await join(broker, [name], name)
    reader.fetch_from(where, 0)
    await reader.until(lambda: reader.ended(where, 2), "both")
    assert [record.value for record in reader.records[where]] == [b"later", OVERTAKEN]
