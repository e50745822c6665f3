"""What a broker with an ack for each message promises (`ackd.ports.broker_side_acks`).

It hands over in any order and more than once; under its id every message can be told again, it
stays away while it is wanted, and for good when it is finished.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from ackd.core.ids import TopicPartition
from ackd.ports import Arrived, AssignedPlace, BrokerSideAcks, Consumer, Record, Stored
from ackd_testing.lab import Bench, Lab, fill, new_group, store
from ackd_testing.needs import all_need, needs
from ackd_testing.publishing import CLOCKS_APART_MS, EVERY_BYTE, MESSAGES, addressed, wall_ms
from ackd_testing.reader import Reader

DELAY_MS = 1_500


class Taker:
    """Takes what is handed over, as the engine would: each is kept under the place it came with."""

    def __init__(self, reader: Reader) -> None:
        assert isinstance(reader.consumer, BrokerSideAcks)
        self.reader = reader
        self.consumer: Consumer = reader.consumer
        self.acks: BrokerSideAcks = reader.consumer
        self.records: dict[bytes, Record] = {}
        self.places: dict[bytes, AssignedPlace] = {}
        self.stored_ms: dict[AssignedPlace, int] = {}
        self.came: Counter[bytes] = Counter()
        self._looked = 0
        self._wanted: set[TopicPartition] = set()

    async def until(self, count: int, within_s: float = 60.0) -> None:
        """So many different messages have come."""
        await self.reader.until(lambda: self.look() >= count, f"{count} messages", within_s)

    async def during(self, seconds: float) -> None:
        """Whatever comes in that time."""
        await self.reader.during(seconds)
        self.look()

    def look(self) -> int:
        """How many different messages have come so far; what is assigned is wanted."""
        for part in self.reader.assigned - self._wanted:
            self.consumer.fetch_from(part, 0)
            self._wanted.add(part)
        events = self.reader.of(Arrived)
        for event in events[self._looked :]:
            for each in event.arrivals:
                assert TopicPartition(event.topic, each.place.partition) in self.reader.assigned
                self.came[each.id] += 1
                self.records[each.id] = each.record
                self.stored_ms[each.place] = each.stored_ms
                self.acks.placed(event.topic, each.id, self.places.setdefault(each.id, each.place))
        self._looked = len(events)
        return len(self.records)

    def finish(self, topic: str, *ids: bytes) -> None:
        """Report that the store has finished these messages (broker ids)."""
        for each in ids:
            place = self.places[each]
            self.acks.finished(TopicPartition(topic, place.partition), (place.offset,))

    @property
    def values(self) -> list[bytes | None]:
        """Of all that came, each once, sorted."""
        return sorted((each.value for each in self.records.values()), key=lambda it: it or b"")


async def taker(bench: Bench, parts: list[TopicPartition], group: str | None = None) -> Taker:
    """A consumer that has been assigned and draws."""
    reader = await bench.join(await bench.broker(), [parts[0].topic], group)
    await reader.until(lambda: reader.assigned >= {*parts}, "all", bench.lab.rebalance_s)
    made = Taker(reader)
    made.look()
    return made


@pytest.mark.asyncio
@all_need("broker_side_acks")
class BrokerSideAcksContract:
    """Subclass it with a fixture `lab`; `Lab.hold_s` says how long its options hold messages."""

    async def test_messages_come_back_whole(self, lab: Lab) -> None:
        """Null and empty apart, every byte, headers with their order, repeats and nulls."""
        async with lab.bench() as bench:
            parts = await bench.topic()
            it = await taker(bench, parts)
            before_ms = wall_ms()
            broker = await bench.broker()
            await store(broker, *(addressed(broker, parts[0], message) for message in MESSAGES))
            await it.until(len(MESSAGES))
            left = list(MESSAGES)
            for record in it.records.values():
                assert abs(record.timestamp_ms - before_ms) < CLOCKS_APART_MS
                found = [
                    each
                    for each in left
                    if (each.key, each.value, each.headers)
                    == (record.key, record.value, record.headers)
                ]
                assert found, f"nobody sent {record}"
                left.remove(found[0])

    async def test_largest_value(self, lab: Lab) -> None:
        """`value_bytes_max` is true: a value of that size is stored and comes back."""
        async with lab.bench() as bench:
            parts = await bench.topic()
            it = await taker(bench, parts)
            broker = await bench.broker()
            most = broker.capabilities.value_bytes_max
            value = (EVERY_BYTE * (most // 256 + 1))[:most]
            await fill(broker, parts[0], [value])
            await it.until(1)
            assert it.values == [value]

    async def test_i1_every_message_comes_under_an_id_of_its_own(self, lab: Lab) -> None:
        """Of all partitions; while it is held, nobody gets it again (I3)."""
        async with lab.bench() as bench:
            parts = await bench.topic(4)
            it = await taker(bench, parts)
            wanted = [b"%03d" % number for number in range(200)]
            broker = await bench.broker()
            await asyncio.gather(*(fill(broker, parts[0], [value]) for value in wanted))
            await it.until(len(wanted))
            assert it.values == wanted
            assert len(set(it.places.values())) == len(wanted)
            assert set(it.came.values()) == {1}
            # Later times at used offsets are how a log that lost its tail is noticed.
            for one, two in pairwise(sorted(it.stored_ms)):
                if one.partition == two.partition:
                    assert it.stored_ms[one] <= it.stored_ms[two]

    async def test_i2_held_ones_stay_and_finished_ones_are_over(self, lab: Lab) -> None:
        """For several times the broker's hold; then whoever comes next gets what is left (I1)."""
        async with lab.bench() as bench:
            parts, group = await bench.topic(2), new_group()
            one = await taker(bench, parts, group)
            broker = await bench.broker()
            await fill(broker, parts[0], [b"%d" % number for number in range(8)])
            await one.until(8)
            ids = sorted(one.places)
            one.finish(parts[0].topic, *ids[:4])
            await one.during(2.5 * lab.hold_s)
            assert {one.came[each] for each in ids[:4]} == {1}
            kept = set(one.acks.kept(parts[0].topic))
            assert {each for each, _ in kept} == set(ids[4:])
            if lab.holds_surely:
                assert set(one.came.values()) == {1}
                assert kept == {(each, one.places[each]) for each in ids[4:]}
            await one.consumer.close()
            two = await taker(bench, parts, group)
            await two.until(4)
            await two.during(lab.hold_s)
            assert sorted(two.records) == ids[4:]

    async def test_r32_one_that_is_not_wanted_comes_again_under_its_id(self, lab: Lab) -> None:
        """Soon, wherever it lies then; finished under its first place it is over."""
        async with lab.bench() as bench:
            parts, group = await bench.topic(), new_group()
            it = await taker(bench, parts, group)
            await fill(await bench.broker(), parts[0], [b"x"])
            await it.until(1)
            (name,) = it.records
            it.acks.unwanted(parts[0].topic, name)
            await it.reader.until(
                lambda: it.look() == 1 and it.came[name] == 2, "it again", lab.rebalance_s
            )
            it.finish(parts[0].topic, name)
            await it.during(2 * lab.hold_s)
            assert it.came[name] == 2

    async def test_pause_holds_up_and_stop_gives_back(self, lab: Lab) -> None:
        """Nothing new comes while a partition is paused; what was stopped comes to others."""
        async with lab.bench() as bench:
            parts, group = await bench.topic(), new_group()
            it = await taker(bench, parts, group)
            broker = await bench.broker()
            await fill(broker, parts[0], [b"first"])
            await it.until(1)
            it.consumer.pause(parts[0])
            await it.during(lab.poll_s)  # a question that was under way may still be answered
            await fill(broker, parts[0], [b"second"])
            await it.during(lab.poll_s)
            assert it.values == [b"first"]
            it.consumer.stop_fetch(parts[0])
            other = await taker(bench, parts, group)
            await other.until(2)
            assert other.values == [b"first", b"second"]

    async def test_groups_are_independent(self, lab: Lab) -> None:
        """Each gets everything, whatever the other one finishes."""
        async with lab.bench() as bench:
            parts = await bench.topic(2)
            both = [await taker(bench, parts), await taker(bench, parts)]
            await fill(await bench.broker(), parts[0], [b"1", b"2", b"3"])
            for each in both:
                await each.until(3)
                each.finish(parts[0].topic, *each.records)
                assert each.values == [b"1", b"2", b"3"]

    async def test_i8_what_was_published_by_many_comes_once(self, lab: Lab) -> None:
        """No message is lost, none doubled, by twenty publishers at once and many calls."""
        async with lab.bench() as bench:
            parts = await bench.topic(2)
            it = await taker(bench, parts)
            broker = await bench.broker()

            async def publish(number: int) -> None:
                for turn in range(5):
                    values = [b"%d/%d/%d" % (number, turn, each) for each in range(5)]
                    await fill(broker, parts[0], values)

            async with asyncio.TaskGroup() as tasks:
                for number in range(20):
                    tasks.create_task(publish(number))
            await it.until(500)
            assert set(it.came.values()) == {1}
            assert len(set(it.values)) == 500

    @needs("delays")
    async def test_delay(self, lab: Lab) -> None:
        """A delayed message comes when it is due, not before."""
        async with lab.bench() as bench:
            parts = await bench.topic()
            it = await taker(bench, parts)
            broker = await bench.broker()
            late = addressed(broker, parts[0], MESSAGES[-1], delay_ms=DELAY_MS)
            sent_ms = wall_ms()
            assert isinstance((await broker.publish([late]))[0], Stored)
            await fill(broker, parts[0], [b"now"])
            await it.until(1)
            assert it.values == [b"now"]
            await it.until(2)
            assert wall_ms() - sent_ms >= DELAY_MS
            (record,) = [each for each in it.records.values() if each.value != b"now"]
            assert (record.key, record.value) == (late.key, late.value)
            assert record.headers == late.headers
