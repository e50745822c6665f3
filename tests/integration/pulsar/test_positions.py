"""Positions of groups and numbers of messages on a real Pulsar, through what its operators do."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Broker, Committed, ConsumerSpec
from ackd_adapters.pulsar.positions import Positions
from ackd_testing import Reader
from ackd_testing.lab import fill, load, open_broker
from tests.support.pulsar import Pulsar, bare
from tests.support.wait import wait_until, wait_until_async

pytestmark = [pytest.mark.pulsar, pytest.mark.slow, pytest.mark.timeout(400)]

GROUP = "workers"
TOPICS_MAX = 5
LOST_S = 20.0


class LostRequestError(Exception):
    """A broker under load lost a request about a topic that it had just moved: from then on it
    answers none about it, those of clients and `unload` included.
    """


@asynccontextmanager
async def answered() -> AsyncIterator[None]:
    """What is asked in here has an answer in time. Raises LostRequestError."""
    try:
        async with asyncio.timeout(LOST_S):
            yield
    except TimeoutError as error:
        raise LostRequestError from error
    except BrokerError as error:
        if "timed out" not in error.detail:
            raise
        raise LostRequestError from error


@dataclass
class Place:
    """A topic of its own and a connection to it."""

    broker: Broker
    part: TopicPartition
    path: str
    pulsar: Pulsar

    async def ask(self, method: str, path: str, body: object = None) -> None:
        """The admin interface, about the topic. Raises LostRequestError."""
        full = f"persistent/{self.path}/{path}"
        try:
            await asyncio.to_thread(self.pulsar.admin.ask, method, full, body, timeout_s=15.0)
        except TimeoutError as error:
            raise LostRequestError from error

    async def range_of(self, member: Reader) -> tuple[int, int]:
        """First and end of the topic's log. Raises LostRequestError."""
        async with answered():
            return await member.consumer.log_range(self.part)

    async def commit(self, member: Reader, offset: int) -> None:
        """As a member of the group. Raises LostRequestError."""
        async with answered():
            await member.consumer.commit({self.part: Committed(offset, "done")})

    async def another(self) -> "Place":
        """The same with another topic."""
        topic = f"positions-{time.time_ns()}"
        path = f"public/default/{topic}"
        await asyncio.to_thread(self.pulsar.admin.create_topic, path)
        return replace(self, part=TopicPartition(topic, 0), path=path)

    async def joined(self) -> Reader:
        """A member of the group that holds the partition."""
        consumer = self.broker.consumer(ConsumerSpec(GROUP, (self.part.topic,), "test"))
        await consumer.start()
        reader = Reader(consumer)
        await reader.until(lambda: reader.assigned, "assigned", 40)
        return reader


@pytest.fixture
async def place(pulsar: Pulsar) -> AsyncIterator[Place]:
    """A topic that is not partitioned."""
    await asyncio.to_thread(load, "pulsar")
    options: dict[str, str | int] = {
        "service_url": pulsar.url,
        "admin_url": pulsar.web_url,
        "batch_messages_max": 1,
        "group_poll_ms": 200,
    }
    broker = open_broker("pulsar", options)
    await broker.start()
    yield await Place(broker, TopicPartition("", 0), "", pulsar).another()
    await broker.close()


async def test_r6_a_subscription_of_plain_consumers_is_resumed(place: Place) -> None:
    """Where they were, and without ackd's metadata: the engine sees a foreign position (R8)."""
    await fill(place.broker, place.part, [b"x"] * 10)

    def consume() -> None:
        with bare.client(place.pulsar.url) as made:
            consumer = bare.join(made, f"persistent://{place.path}", GROUP)
            for message in bare.drain(consumer, 10)[:4]:
                consumer.acknowledge(message)
            consumer.close()
            wait_until(lambda: place.pulsar.admin.backlog(place.path, GROUP) == 6, "4 acked")

    await asyncio.to_thread(consume)
    member = await place.joined()
    assert await member.consumer.committed([place.part]) == {place.part: Committed(4, "")}
    await member.consumer.commit({place.part: Committed(7, "ours")})
    assert await member.consumer.committed([place.part]) == {place.part: Committed(7, "ours")}


async def test_r8_an_operators_skip_counts_and_a_cursor_that_fell_back_does_not(
    place: Place,
) -> None:
    """A killed broker leaves a cursor behind; nobody but a person puts it ahead (R8, I2)."""
    await fill(place.broker, place.part, [b"x"] * 10)
    member = await place.joined()
    await member.consumer.commit({place.part: Committed(5, "ours")})
    earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    await place.ask("POST", f"subscription/{GROUP}/resetcursor", earliest)
    assert await member.consumer.committed([place.part]) == {place.part: Committed(5, "ours")}
    await place.ask("POST", f"subscription/{GROUP}/skip/8")
    assert await member.consumer.committed([place.part]) == {place.part: Committed(8, "")}


async def test_r1_numbers_go_on_when_ledgers_come_and_go(place: Place) -> None:
    """Everything is finished and committed, the topic moves again and again: no number is lost,
    although the broker deletes each ledger that is consumed.
    """
    for _ in range(TOPICS_MAX - 1):
        with suppress(LostRequestError):
            return await ledgers_come_and_go(place)
        place = await place.another()
    return await ledgers_come_and_go(place)


async def ledgers_come_and_go(place: Place) -> None:
    """On one topic. Raises LostRequestError."""
    member = await place.joined()
    member.fetch_from(place.part, 0)
    admin = place.pulsar.admin
    for count in (5, 10, 15):
        offsets = list(range(count - 5, count))
        assert await fill(place.broker, place.part, [b"x"] * 5) == offsets
        await member.until(partial(_has, member, place.part, count), "all", 30)
        await place.commit(member, count)

        def consumed() -> bool:
            return admin.backlog(place.path, GROUP) <= 1

        await asyncio.to_thread(wait_until, consumed, "the cursor has followed")
        for _ in range(2):
            await place.ask("PUT", "unload")
            _, end = await place.range_of(member)
            assert end == count
    assert member.offsets(place.part) == list(range(15))

    async def deleted() -> bool:
        # A topic that moves may come back with an older cursor, and a client does not repeat an
        # ack: it is the next one that takes the cursor along.
        (end,) = await fill(place.broker, place.part, [b"x"])
        await place.commit(member, end + 1)
        await place.ask("POST", "trim")
        first, behind = await place.range_of(member)
        if behind != end + 1:
            raise ValueError((behind, end))
        return first in {10, 15}

    await wait_until_async(deleted, "the broker has deleted what is consumed", interval_s=0.3)
    await member.consumer.close()


def _has(member: Reader, part: TopicPartition, count: int) -> bool:
    return len(member.records[part]) == count


async def test_what_a_member_took_is_its_own_when_the_next_partition_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is busy with a subscription that others make, say: the rest is taken later, and
    the first ones are reported, because nobody else can take them.
    """
    topic, ensure, refused = f"refused-{time.time_ns()}", Positions.ensure, list[TopicPartition]()
    await asyncio.to_thread(place.pulsar.admin.create_topic, f"public/default/{topic}", 3)

    def busy_once(self: Positions, partition: TopicPartition) -> None:
        if partition.partition == 2 and not refused:
            refused.append(partition)
            raise BrokerError("subscription busy")
        ensure(self, partition)

    monkeypatch.setattr(Positions, "ensure", busy_once)
    consumer = place.broker.consumer(ConsumerSpec(GROUP, (topic,), "test"))
    await consumer.start()
    member = Reader(consumer)
    want = {TopicPartition(topic, number) for number in range(3)}
    await member.until(lambda: member.assigned == want, "all of them", 40)
    assert refused
    await consumer.close()
