"""What fetching promises: sessions, order, nothing stale, pause without loss, a bounded buffer."""

from __future__ import annotations

import asyncio

import pytest

from ackd.ports import ConsumerSpec, EndReached, Fetched, OutOfRange, Revoked, TopicReplaced
from ackd_testing.lab import Lab, new_group
from ackd_testing.needs import all_need, needs
from ackd_testing.reader import Reader

QUIET_S = 0.5


@pytest.mark.asyncio
@all_need("offsets")
class FetchContract:
    """Subclass it with a fixture `lab`. `Reader` checks sessions and order in every test."""

    async def test_everything_in_order_in_one_session(self, lab: Lab) -> None:
        """Several batches, several partitions; then the end."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.topic(3)
            values = [b"%d" % number for number in range(2500)]
            for part in parts:
                await bench.fill(broker, part, values)
            reader = await bench.reads(broker, [parts[0].topic])
            for part in parts:
                reader.fetch_from(part, 0)
            await reader.until(lambda: all(reader.ended(each, 2500) for each in parts), "all ends")
            for part in parts:
                assert reader.offsets(part) == list(range(2500))
                assert reader.values(part) == values

    async def test_starts_where_it_is_told(self, lab: Lab) -> None:
        """The first record is the one at the offset asked for; the end is a place to start, too."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.filled(broker, 2, [b"x"] * 20)
            reader = await bench.reads(broker, [parts[0].topic])
            reader.fetch_from(parts[0], 13)
            reader.fetch_from(parts[1], 20)
            await reader.until(lambda: all(reader.ended(each, 20) for each in parts), "both ends")
            assert reader.offsets(parts[0]) == list(range(13, 20))
            assert not reader.records[parts[1]]
            await bench.fill(broker, parts[1], [b"new"])
            await reader.until(lambda: reader.records[parts[1]], "the new one")
            assert reader.offsets(parts[1]) == [20]

    @needs("positions")
    async def test_one_that_does_not_join_only_reads(self, lab: Lab) -> None:
        """It gets the records, nobody in the group notices, and it gets no partition."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.filled(broker, 2, [b"x"] * 20)
            group = new_group()
            member = await bench.reads(broker, [parts[0].topic], group)
            everything = set(parts)
            await member.until(
                lambda: member.assigned == everything, "a assignment", lab.rebalance_s
            )
            spec = ConsumerSpec(group, (parts[0].topic,), "looks", joins=False)
            consumer = broker.consumer(spec)
            try:
                await consumer.start()
                reader = Reader(consumer)
                assert [each.topic for each in await consumer.topics()] == [parts[0].topic]
                assert await consumer.log_range(parts[1]) == (0, 20)
                reader.fetch_from(parts[1], 5)
                await reader.until(lambda: reader.ended(parts[1], 20), "the end")
                assert reader.offsets(parts[1]) == list(range(5, 20))
                assert not reader.assigned
            finally:
                await consumer.close()
            await bench.fill(broker, parts[0], [b"more"])
            member.fetch_from(parts[0], 20)
            await member.until(lambda: member.records[parts[0]], "a record")
            assert member.assigned == everything
            assert not member.of(Revoked)

    async def test_end_is_told_again_after_more_came(self, lab: Lab) -> None:
        """An empty partition has an end, and each new end is told."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            reader = await bench.reads(broker, [part.topic])
            session = reader.fetch_from(part, 0)
            for end in range(3):
                await reader.until(lambda end=end: reader.ended(part, end), f"end {end}")  # type: ignore[misc]
                await bench.fill(broker, part, [b"x"])
            assert EndReached(part, session, 1) in reader.events

    @needs("positions")
    async def test_r5_fetches_without_a_assignment(self, lab: Lab) -> None:
        """Assignment is not ownership: a partition assigned to another can be read (rule R5)."""
        async with lab.bench() as bench:
            one, two = await bench.broker(), await bench.broker()
            parts = await bench.topic(2)
            for part in parts:
                await bench.fill(one, part, [b"a", b"b"])
            holder = await bench.reads(one, [parts[0].topic], parts[0].topic)
            await holder.until(lambda: holder.assigned == set(parts), "all", lab.rebalance_s)
            other = await bench.reads(two, ["^contract-nothing-has-this-name"], parts[0].topic)
            for part in parts:
                other.fetch_from(part, 0)
            await other.until(lambda: all(other.ended(part, 2) for part in parts), "both ends")
            assert not other.assigned
            assert holder.assigned == set(parts)

    async def test_r7_no_record_of_an_earlier_session(self, lab: Lab) -> None:
        """Seek after seek, at any moment: nothing comes under a wrong number (rule R7)."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.topic(2)
            for part in parts:
                await bench.fill(broker, part, [b"%d" % number for number in range(1000)])
            reader = await bench.reads(broker, [parts[0].topic])
            for turn in range(40):
                for part in parts:
                    reader.fetch_from(part, turn * 137 % 1000)
                # Sometimes at once, sometimes in the middle of what comes.
                if turn % 3:
                    reader.take(await reader.consumer.events())
            starts = {part: 950 - 10 * part.partition for part in parts}
            for part, start in starts.items():
                reader.fetch_from(part, start)
            await reader.until(lambda: all(reader.ended(part, 1000) for part in parts), "the ends")
            for part, start in starts.items():
                assert reader.offsets(part) == list(range(start, 1000))

    async def test_stopped_partition_is_silent(self, lab: Lab) -> None:
        """What is buffered is dropped, the others go on; it can be begun again."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.filled(broker, 2, [b"x"] * 1500)
            reader = await bench.reads(broker, [parts[0].topic])
            for part in parts:
                reader.fetch_from(part, 0)
            await reader.until(lambda: reader.records[parts[0]], "some")
            reader.stop_fetch(parts[0])
            reader.stop_fetch(parts[0])
            await bench.fill(broker, parts[0], [b"more"])
            await reader.until(lambda: reader.ended(parts[1], 1500), "the other's end")
            await reader.during(QUIET_S)
            reader.fetch_from(parts[0], 1400)
            await reader.until(lambda: reader.ended(parts[0], 1501), "the end")
            assert reader.offsets(parts[0]) == list(range(1400, 1501))

    async def test_r7_pause_loses_nothing_and_keeps_the_session(self, lab: Lab) -> None:
        """Nothing while it is paused; afterwards all, under the same session (rule R7)."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.filled(broker, 2, [b"x"] * 3000)
            reader = await bench.reads(broker, [parts[0].topic])
            session = reader.fetch_from(parts[0], 0)
            reader.fetch_from(parts[1], 0)
            for _ in range(5):
                seen = len(reader.records[parts[0]])
                await reader.until(
                    lambda seen=seen: (
                        len(reader.records[parts[0]]) > seen  # type: ignore[misc]
                        or reader.ended(parts[0], 3000)
                    ),
                    "more",
                )
                reader.pause(parts[0])
                reader.pause(parts[0])
                await reader.during(0.1)
                reader.resume(parts[0])
                reader.resume(parts[0])
            reader.pause(parts[0])
            await bench.fill(broker, parts[0], [b"while paused"])
            await reader.until(lambda: reader.ended(parts[1], 3000), "the other is not held up")
            await reader.during(QUIET_S)
            assert not reader.ended(parts[0], 3001)
            reader.resume(parts[0])
            await reader.until(lambda: reader.ended(parts[0], 3001), "the end")
            assert reader.offsets(parts[0]) == list(range(3001))
            found = {event.session for event in reader.of(Fetched) if event.partition == parts[0]}
            assert found == {session}

    async def test_a_seek_ends_a_pause(self, lab: Lab) -> None:
        """`fetch_from` begins anew, whatever was before."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            await bench.fill(broker, part, [b"x"] * 10)
            reader = await bench.reads(broker, [part.topic])
            reader.fetch_from(part, 0)
            reader.pause(part)
            reader.fetch_from(part, 5)
            await reader.until(lambda: reader.ended(part, 10), "the end")
            assert reader.offsets(part) == list(range(5, 10))

    async def test_r6_beyond_the_end_is_out_of_range(self, lab: Lab) -> None:
        """Told once, with what there is; no silent reset, and the partition can be begun again."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            await bench.fill(broker, part, [b"x"] * 10)
            reader = await bench.reads(broker, [part.topic])
            session = reader.fetch_from(part, 5000)
            await reader.until(lambda: reader.of(OutOfRange), "out of range")
            await reader.during(QUIET_S)
            assert reader.of(OutOfRange) == [OutOfRange(part, session, 0, 10)]
            assert not reader.records[part]
            reader.fetch_from(part, 10)
            await reader.until(lambda: reader.ended(part, 10), "the end")

    @needs("drops_records")
    async def test_r6_dropped_records_are_out_of_range(self, lab: Lab) -> None:
        """At the start, and under a session that was paused while retention passed it."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            parts = await bench.filled(broker, 2, [b"x"] * 50)
            reader = await bench.reads(broker, [parts[0].topic])
            running = reader.fetch_from(parts[1], 0)
            await reader.until(lambda: reader.ended(parts[1], 50), "read")
            reader.pause(parts[1])
            await bench.fill(broker, parts[1], [b"y"] * 50)
            await lab.truncate(parts[0], 20)
            await lab.truncate(parts[1], 80)
            early = reader.fetch_from(parts[0], 7)
            reader.resume(parts[1])
            await reader.until(lambda: len(reader.of(OutOfRange)) == 2, "both")
            assert set(reader.of(OutOfRange)) == {
                OutOfRange(parts[0], early, 20, 50),
                OutOfRange(parts[1], running, 80, 100),
            }
            reader.fetch_from(parts[0], 20)
            await reader.until(lambda: reader.ended(parts[0], 50), "the rest")
            assert reader.offsets(parts[0]) == list(range(20, 50))

    @needs("positions")
    async def test_r1_topic_made_again(self, lab: Lab) -> None:
        """Another identity, told by an event; the old sessions and positions are gone (rule R1)."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            await bench.fill(broker, part, [b"old"] * 10)
            reader = await bench.reads(broker, [part.topic])
            (before,) = await reader.consumer.topics()
            reader.fetch_from(part, 0)
            await reader.until(lambda: reader.ended(part, 10), "the old end")
            await lab.delete_topic(part.topic)
            await lab.create_topic(part.topic, 1)
            # More than before: a client that only knows the name goes on at offset 10. Until it
            # is told it may; what it fetched so belongs to an ended session.
            await bench.fill(broker, part, [b"new"] * 30)
            await reader.until(lambda: reader.of(TopicReplaced), "replaced", lab.refresh_s)
            (after,) = await reader.consumer.topics()
            assert after.topic_id != before.topic_id
            assert reader.of(TopicReplaced) == [TopicReplaced(part.topic, after.topic_id)]
            seen = len(reader.of(Fetched))
            await reader.during(QUIET_S)
            assert len(reader.of(Fetched)) == seen, "an ended session goes on"
            assert reader.values(part)[:10] == [b"old"] * 10
            reader.fetch_from(part, 0)
            await reader.until(lambda: reader.ended(part, 30), "the new end")
            assert reader.values(part) == [b"new"] * 30

    async def test_i8_buffer_is_bounded(self, lab: Lab) -> None:
        """An engine that takes nothing makes no one hoard; nothing is lost by it (I8)."""
        if lab.small_buffer is None:
            pytest.skip("this lab knows no small buffer")
        options, bound = lab.small_buffer
        async with lab.bench() as bench:
            broker = await bench.broker(options)
            parts = await bench.topic(2)
            count = bound * 8 // 10_000
            for part in parts:
                for start in range(0, count, 100):
                    await bench.fill(broker, part, [b"x" * 10_000] * min(100, count - start))
            reader = await bench.reads(broker, [parts[0].topic])
            for part in parts:
                reader.fetch_from(part, 0)
            await asyncio.sleep(1.0)  # Time to hoard, for one that would; a good one passes anyway.
            while not reader.of(Fetched):
                waiting = await reader.consumer.events()
                reader.take(waiting)
            size = sum(record.size() for event in reader.of(Fetched) for record in event.records)
            assert size <= bound
            await reader.until(lambda: all(reader.ended(part, count) for part in parts), "all")
            for part in parts:
                assert reader.offsets(part) == list(range(count))

    async def test_two_consumers_of_one_connection(self, lab: Lab) -> None:
        """Each has its own sessions and sees everything; one's end does not touch the other."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            await bench.fill(broker, part, [b"x"] * 100)
            one = await bench.reads(broker, [part.topic])
            two = await bench.reads(broker, [part.topic])
            one.fetch_from(part, 0)
            two.fetch_from(part, 50)
            await one.until(lambda: one.ended(part, 100), "one")
            await one.consumer.close()
            await bench.fill(broker, part, [b"y"])
            await two.until(lambda: two.ended(part, 101), "two")
            assert (len(one.records[part]), len(two.records[part])) == (100, 51)
