"""Nobody tells when a delayed message is due: nothing is lost, nobody waits for ever (I1, I5).

The real broker answers, but the connection that reads the metadata breaks while it is made to.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import ConsumerSpec, Delay, Fetched
from ackd_adapters.pulsar.heads import Heads
from ackd_adapters.pulsar.wire import Wire
from ackd_testing import Reader
from ackd_testing.lab import load, open_broker
from tests.support.pulsar import Pulsar, bare

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(240)]

HOUR_MS = 3_600_000


class Breaking:
    """In place of `Wire.next_heads`. `asked` counts the questions."""

    def __init__(self) -> None:
        self.broken = False
        self.asked = 0
        self.real = Wire.next_heads

    def __call__(self, wire: Wire, until: float, going: Callable[[], bool]) -> Heads | None:
        self.asked += 1
        if self.broken:
            raise BrokerError("the connection broke")
        return self.real(wire, until, going)


def publish(pulsar: Pulsar, topic: str) -> None:
    """One message that is due in an hour."""
    with bare.client(pulsar.url) as made:
        made.create_producer(topic).send(b"x", deliver_after=timedelta(milliseconds=HOUR_MS))


def delays(reader: Reader) -> dict[int, Delay]:
    """All that were told."""
    return {at: each for event in reader.of(Fetched) for at, each in (event.delays or {}).items()}


async def test_i5_without_an_answer_messages_come_without_their_delay(
    pulsar: Pulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"delays-{time.time_ns()}"
    code = f"delays of {topic}/0"
    part = TopicPartition(topic, 0)
    await asyncio.to_thread(load, "pulsar")
    await asyncio.to_thread(pulsar.admin.create_topic, f"public/default/{topic}")
    breaking = Breaking()

    def next_heads(wire: Wire, until: float, going: Callable[[], bool]) -> Heads | None:
        return breaking(wire, until, going)

    monkeypatch.setattr(Wire, "next_heads", next_heads)
    options: dict[str, str | int] = {
        "service_url": pulsar.url,
        "admin_url": pulsar.web_url,
        "client_delays_wait_ms": 3_000,
    }
    broker = open_broker("pulsar", options)
    await broker.start()
    reader = Reader(broker.consumer(ConsumerSpec("g", (topic,), "test", joins=False)))
    await reader.consumer.start()
    step = 1024  # each message has the room of a batch

    async def comes(count: int) -> None:
        await asyncio.to_thread(publish, pulsar, topic)
        await reader.until(lambda: len(reader.offsets(part)) == count, "it comes", 60)

    reader.fetch_from(part, 0)
    await comes(1)
    due_ms = reader.records[part][0].timestamp_ms + HOUR_MS
    assert abs(delays(reader)[0].due_ms - due_ms) < HOUR_MS // 100
    assert breaking.asked == 1
    breaking.broken = True
    await comes(2)
    assert delays(reader).keys() == {0}
    assert breaking.asked > 2
    assert reader.condition(code) is not None
    breaking.asked = 0
    await comes(3)
    assert breaking.asked == 1, "it is not waited for again"
    breaking.broken = False
    await comes(4)
    assert delays(reader).keys() == {0, 3 * step}
    assert reader.condition(code, cleared=True) is not None
    # Another session asks again.
    before = len(reader.of(Fetched))
    reader.fetch_from(part, 0)
    await reader.until(lambda: len(reader.offsets(part)) == 4, "all again", 60)
    told = [event.delays for event in reader.of(Fetched)[before:]]
    assert {at for each in told for at in each or {}} == {0, step, 2 * step, 3 * step}
    await broker.close()


async def test_delays_are_kept_by_default_among_batches_and_across_moves(pulsar: Pulsar) -> None:
    """Each delayed message of a producer that batches, while the topic moves to and fro; what is
    in batches has no delay, and no question costs the admin interface anything.
    """
    topic = f"delays-{time.time_ns()}"
    part = TopicPartition(topic, 0)
    path = await asyncio.to_thread(pulsar.admin.create_topic, f"public/default/{topic}")
    await asyncio.to_thread(load, "pulsar")
    options = {"service_url": pulsar.url, "admin_url": pulsar.web_url}
    broker = open_broker("pulsar", options)
    await broker.start()
    reader = Reader(broker.consumer(ConsumerSpec("g", (topic,), "test", joins=False)))
    await reader.consumer.start()
    reader.fetch_from(part, 0)
    rounds, later = 4, 25

    def write(number: int) -> None:
        with bare.client(pulsar.url) as made:
            producer = made.create_producer(path, batching_enabled=True)
            for index in range(100):
                producer.send_async(b"now %d" % index, None)
            producer.flush()
            for index in range(later):
                wait = timedelta(milliseconds=(number + 1) * HOUR_MS + index * 1000)
                producer.send(b"later %d" % number, deliver_after=wait)
            producer.flush()

    for number in range(rounds):
        await asyncio.to_thread(write, number)
        expected = (number + 1) * (100 + later)
        await reader.until(lambda: len(reader.offsets(part)) >= expected, "all come", 60)  # noqa: B023 -- awaited in this turn
        full = f"persistent/public/default/{topic}/unload"
        await asyncio.to_thread(pulsar.admin.ask, "PUT", full)
    found = delays(reader)
    values = {each.offset: each.value or b"" for each in reader.records[part]}
    assert {values[at][:5] for at in found} == {b"later"}
    assert len(found) == rounds * later == sum(each[:5] == b"later" for each in values.values())
    for record in reader.records[part]:
        if record.offset in found:
            number = int((record.value or b"")[6:])
            waits_ms = found[record.offset].due_ms - record.timestamp_ms
            assert 0 <= waits_ms - (number + 1) * HOUR_MS < later * 1000 + 5_000
    assert reader.condition(f"delays of {topic}/0") is None
    await broker.close()
