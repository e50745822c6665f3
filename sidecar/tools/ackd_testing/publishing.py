"""What publishing promises: whole messages, in order, a true answer for each one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from ackd.core.ids import TopicPartition
from ackd.ports import Broker, Failure, NotStored, Outgoing, Record, Stored
from ackd_testing.lab import Bench, Lab, fill, store
from ackd_testing.needs import needs

EVERY_BYTE = bytes(range(256))
MESSAGES = [
    Outgoing("", None, None),
    Outgoing("", b"", b""),
    Outgoing("", EVERY_BYTE, EVERY_BYTE),
    Outgoing("", b"only a key", None),
    Outgoing("", None, b"x" * 100_000),
    Outgoing(
        "",
        b"k",
        b"v",
        (("a", b"1"), ("b", None), ("a", b"2"), ("empty", b""), ("z", EVERY_BYTE), ("a", b"1")),
    ),
    Outgoing("", None, b"v", (("ключ", "значение".encode()), ("x" * 300, b"long name"))),
]
CLOCKS_APART_MS = 60_000


@pytest.mark.asyncio
class PublishContract:
    """Subclass it with a fixture `lab`."""

    @needs("positions")
    async def test_messages_come_back_whole(self, lab: Lab) -> None:
        """Null and empty apart, every byte, headers with their order, repeats and nulls."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            before_ms = time.time_ns() // 1_000_000
            await store(broker, *(_to(part, message) for message in MESSAGES))
            records = await _all(bench, part, len(MESSAGES))
            for record, message in zip(records, MESSAGES, strict=True):
                assert record.key == message.key
                assert record.value == message.value
                assert record.headers == message.headers
                assert abs(record.timestamp_ms - before_ms) < CLOCKS_APART_MS

    @needs("offsets")
    async def test_answers_are_in_the_order_of_the_messages(self, lab: Lab) -> None:
        """Each names the place where its message lies; within a partition the order is kept, where
        the broker keeps one. Where it takes no partition, the topic has one.
        """
        async with lab.bench() as bench:
            broker = await bench.broker()
            can = broker.capabilities
            parts = await bench.topic(3 if can.explicit_partition else 1)
            places = [parts[number * 7 % len(parts)] for number in range(300)]
            results = await store(
                broker,
                *(
                    Outgoing(part.topic, None, b"%d" % number, (), _place(broker, part.partition))
                    for number, part in enumerate(places)
                ),
            )
            assert [TopicPartition(each.topic, each.partition) for each in results] == places
            for part in parts:
                stored = [
                    (each.offset, b"%d" % number)
                    for number, (each, place) in enumerate(zip(results, places, strict=True))
                    if place == part
                ]
                assert len({offset for offset, _ in stored}) == len(stored)
                if can.order_within_partition:
                    assert stored == sorted(stored)
                found = await _all(bench, part, max(stored)[0] + 1)
                assert [(record.offset, record.value) for record in found] == sorted(stored)

    @needs("positions")
    async def test_r20_key_decides_the_partition(self, lab: Lab) -> None:
        """The same key goes to the same partition; keys spread over all of them (rule R20)."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.topic(4)
            keys = [b"key-%d" % (number % 50) for number in range(200)]
            results = await store(broker, *(Outgoing(parts[0].topic, key, b"v") for key in keys))
            where: dict[bytes, set[int]] = {}
            for key, result in zip(keys, results, strict=True):
                where.setdefault(key, set()).add(result.partition)
            assert {len(places) for places in where.values()} == {1}
            assert {each.partition for each in results} == {0, 1, 2, 3}

    @needs("explicit_partition", "offsets")
    async def test_partition_asked_for(self, lab: Lab) -> None:
        """Where the broker can, a message goes where it is told, whatever its key says."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.topic(3)
            results = await store(
                broker,
                *(Outgoing(part.topic, b"same key", b"v", (), part.partition) for part in parts),
            )
            assert [each.partition for each in results] == [0, 1, 2]

    @needs("offsets")
    async def test_one_refused_message_stops_no_other(self, lab: Lab) -> None:
        """What can never be stored is REFUSED, with a code and a text; the rest is stored."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            place = _place(broker)
            huge = b"x" * (broker.capabilities.value_bytes_max * 2)
            results = await broker.publish(
                [
                    Outgoing(part.topic, None, b"first", (), place),
                    Outgoing(part.topic, None, huge, (), place),
                    Outgoing(part.topic, None, b"nowhere", (), 77),
                    Outgoing("no topic can be called so!", None, b"x"),
                    Outgoing(part.topic, None, b"last", (), place),
                ]
            )
            assert [isinstance(each, Stored) for each in results] == [
                True,
                False,
                False,
                False,
                True,
            ]
            for result in results[1:4]:
                assert isinstance(result, NotStored)
                assert result.failure is Failure.REFUSED
                assert result.code
                assert result.detail
            values = [record.value or b"" for record in await _all(bench, part, 2)]
            if not broker.capabilities.order_within_partition:
                values.sort()
            assert values == [b"first", b"last"]

    @needs("offsets")
    async def test_largest_value(self, lab: Lab) -> None:
        """`value_bytes_max` is true: a value of that size is stored and comes back."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            value = (EVERY_BYTE * (broker.capabilities.value_bytes_max // 256 + 1))[
                : broker.capabilities.value_bytes_max
            ]
            await fill(broker, part, [value])
            (record,) = await _all(bench, part, 1)
            assert record.value == value

    async def test_nothing_to_publish(self, lab: Lab) -> None:
        """An empty list has an empty answer."""
        async with lab.bench() as bench:
            assert await (await bench.broker()).publish([]) == []

    @needs("positions")
    async def test_many_publishers_at_once(self, lab: Lab) -> None:
        """No message is lost, none doubled, no offset given twice."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.topic(2)

            async def publish(number: int) -> list[Stored]:
                found: list[Stored] = []
                for turn in range(10):
                    found += await store(
                        broker,
                        *(
                            Outgoing(parts[0].topic, None, b"%d/%d/%d" % (number, turn, each))
                            for each in range(5)
                        ),
                    )
                return found

            answers = await asyncio.gather(*(publish(number) for number in range(20)))
            places = Counter(answer for found in answers for answer in found)
            assert len(places) == 1000
            values: Counter[bytes | None] = Counter()
            for part in parts:
                end = max(each.offset for each in places if each.partition == part.partition) + 1
                values.update(record.value for record in await _all(bench, part, end))
            assert len(values) == values.total() == 1000

    @needs("offsets")
    async def test_close_stores_what_was_accepted(self, lab: Lab) -> None:
        """Messages under way when the connection is closed get a true answer."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            place = _place(broker)
            messages = [
                Outgoing(part.topic, None, b"%d" % number, (), place) for number in range(500)
            ]
            async with asyncio.TaskGroup() as tasks:
                calls = [
                    tasks.create_task(broker.publish(messages[start : start + 50]))
                    for start in range(0, 500, 50)
                ]
                await asyncio.sleep(0)
                await broker.close()
            results = [result for call in calls for result in call.result()]
            stored = {each.offset for each in results if isinstance(each, Stored)}
            unknown = sum(
                isinstance(each, NotStored) and each.failure is Failure.UNKNOWN for each in results
            )
            assert len(results) == 500
            again = await bench.broker()
            reader = await bench.reads(again, [part.topic])
            end = (await reader.consumer.log_range(part))[1]
            reader.fetch_from(part, 0)
            await reader.until(lambda: reader.ended(part, end), "the end")
            assert stored <= set(reader.offsets(part))
            assert end - len(stored) <= unknown

    @needs("offsets")
    async def test_cancelled_publish_takes_nothing_back(self, lab: Lab) -> None:
        """The call may be cancelled; the connection goes on and the log stays in order."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            async with asyncio.TaskGroup() as tasks:
                call = tasks.create_task(fill(broker, part, [b"perhaps"] * 20))
                await asyncio.sleep(0)
                call.cancel()
            (offset,) = await fill(broker, part, [b"surely"])
            records = await _all(bench, part, offset + 1)
            assert [record.value for record in records].count(b"surely") == 1
            if broker.capabilities.order_within_partition:
                assert len(records) in (1, 21)
            else:
                assert 1 <= len(records) <= 21

    @needs("positions")
    async def test_delay(self, lab: Lab) -> None:
        """A delayed message comes when it is due, not before; without the ability it is refused."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            late = Outgoing(part.topic, b"k", b"late", (("h", b"1"),), 0, delay_ms=400)
            before = time.monotonic()
            (result,) = await broker.publish([late])
            if not broker.capabilities.delayed_publish:
                assert isinstance(result, NotStored)
                assert result.failure is Failure.REFUSED
                return
            assert isinstance(result, Stored)
            await fill(broker, part, [b"now"])
            reader = await bench.join(broker, [part.topic])
            reader.fetch_from(part, 0)
            await reader.until(lambda: len(reader.records[part]) == 2, "both")
            assert 0.4 <= time.monotonic() - before < 2.0
            now, then = reader.records[part]
            assert (now.value, then.value, then.key) == (b"now", b"late", b"k")
            assert then.headers == late.headers
            assert then.offset > now.offset

    @needs("positions", "delays")
    async def test_delays_in_the_order_of_their_due_times(self, lab: Lab) -> None:
        """Whatever the order of publishing; a closed connection changes nothing about it."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            delays = (700, 500, 600, 800)
            await store(
                broker,
                *(
                    Outgoing(part.topic, None, b"%d" % delay, (), 0, delay_ms=delay)
                    for delay in delays
                ),
            )
            await broker.close()
            reader = await bench.join(await bench.broker(), [part.topic])
            reader.fetch_from(part, 0)
            await reader.until(lambda: len(reader.records[part]) == 4, "all")
            assert reader.values(part) == [b"500", b"600", b"700", b"800"]

    async def test_delay_out_of_bounds_is_refused(self, lab: Lab) -> None:
        """The adapter's `delay_max_ms` is its real bound."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            most_ms = broker.capabilities.delay_max_ms
            (result,) = await broker.publish(
                [Outgoing(part.topic, None, b"x", delay_ms=most_ms + 1)]
            )
            assert isinstance(result, NotStored)
            assert result.failure is Failure.REFUSED


def wall_ms() -> int:
    """Unix time in ms."""
    return time.time_ns() // 1_000_000


def addressed(
    broker: Broker, part: TopicPartition, message: Outgoing, *, delay_ms: int = 0
) -> Outgoing:
    """The same message for this topic, and for this partition where one can be chosen."""
    number = part.partition if broker.capabilities.explicit_partition else None
    return Outgoing(part.topic, message.key, message.value, message.headers, number, delay_ms)


def _to(part: TopicPartition, message: Outgoing) -> Outgoing:
    """The same message, to this partition."""
    return Outgoing(part.topic, message.key, message.value, message.headers, part.partition)


def _place(broker: Broker, partition: int = 0) -> int | None:
    """A partition, where a message can be told to go there."""
    return partition if broker.capabilities.explicit_partition else None


async def _all(bench: Bench, part: TopicPartition, end: int) -> list[Record]:
    """All records of a partition up to its end offset, read by a connection of its own."""
    reader = await bench.reads(await bench.broker(), [part.topic])
    reader.fetch_from(part, 0)
    await reader.until(lambda: reader.ended(part, end), f"the end at {end}")
    return reader.records[part]
