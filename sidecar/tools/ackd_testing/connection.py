"""What a connection promises: identity, topics, positions in a log, capabilities, closing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import FrozenInstanceError, fields

import pytest

from ackd.core.ids import TOPIC_ID_BYTES, TopicPartition
from ackd.errors import BrokerError
from ackd.ports import Broker, Capabilities, NotStored, Outgoing, StartPolicy
from ackd_testing.lab import Lab, new_group
from ackd_testing.needs import needs

CLOSE_S = 30.0
HOUR_MS = 3_600_000
ODD_TAILS = ("", ".a", "_a", "-a", "/a b", "-группа", "x" * 239, "x" * 240)
"""What makes a group's name unlike a topic's, or like another group's."""


def wall_ms() -> int:
    """Unix time in ms."""
    return time.time_ns() // 1_000_000


@pytest.mark.asyncio
class ConnectionContract:
    """Subclass it with a fixture `lab`."""

    async def test_r1_cluster_id_is_the_clusters_own(self, lab: Lab) -> None:
        """Two connections, and one made later, name the cluster alike (rule R1)."""
        async with lab.bench() as bench:
            first, second = await bench.broker(), await bench.broker()
            names = [await first.cluster_id(), await second.cluster_id()]
            await first.close()
            names.append(await (await bench.broker()).cluster_id())
            assert names[0]
            assert len(set(names)) == 1

    async def test_r1_topic_identity(self, lab: Lab) -> None:
        """A topic has 16 bytes of identity, the same for all, and another one has others."""
        async with lab.bench() as bench:
            one, other = await bench.topic(3), await bench.topic(1)
            names = [one[0].topic, other[0].topic]
            reader = await bench.reads(await bench.broker(), names)
            found = {info.topic: info for info in await reader.consumer.topics()}
            assert set(found) == set(names)
            assert [found[name].partitions for name in names] == [3, 1]
            identities = [found[name].topic_id for name in names]
            assert {len(each) for each in identities} == {TOPIC_ID_BYTES}
            assert identities[0] != identities[1]
            later = await bench.reads(await bench.broker(), names)
            assert {info.topic: info for info in await later.consumer.topics()} == found

    async def test_partitions_of_a_topic(self, lab: Lab) -> None:
        """As many as it was made with; None for one that does not exist, which makes none."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            topic = await bench.topic(5)
            assert await broker.partitions(topic[0].topic) == 5
            for _ in range(2):
                assert await broker.partitions("contract-no-such-topic") is None

    @needs("makes_topics", "offsets")
    async def test_ensure_topic(self, lab: Lab) -> None:
        """Makes a topic as told, and leaves one alone that is there."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            name = f"contract-ensured-{new_group()}"
            await broker.ensure_topic(name, {"partitions": "3", "cleanup.policy": "delete"})
            assert await broker.partitions(name) == 3
            await bench.fill(broker, TopicPartition(name, 2), [b"kept"])
            await broker.ensure_topic(name, {"partitions": "7"})
            assert await broker.partitions(name) == 3
            reader = await bench.reads(broker, [name])
            assert await reader.consumer.log_range(TopicPartition(name, 2)) == (0, 1)

    async def test_ensure_topic_refuses_what_can_not_be(self, lab: Lab) -> None:
        """A name that no topic can have is a BrokerError."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            with pytest.raises(BrokerError):
                await broker.ensure_topic("no topic can be called so!", {})

    @needs("makes_topics", "offsets")
    async def test_r25_dead_letter_topics(self, lab: Lab) -> None:
        """Every group has one of its own that can be made, whatever its name (rule R25)."""
        run = new_group()
        groups = [run + tail for tail in ODD_TAILS]
        async with lab.bench() as bench:
            unused, broker = lab.open(), await bench.broker()
            names = [unused.dead_letter_topic(group) for group in groups]
            names += [unused.retry_topic(group) for group in groups]
            assert len(set(names)) == 2 * len(groups)
            again = [broker.dead_letter_topic(group) for group in groups]
            assert [*again, *(broker.retry_topic(group) for group in groups)] == names
            for number, name in enumerate(names):
                assert await broker.partitions(name) is None
                await broker.ensure_topic(name, {"partitions": "1", "cleanup.policy": "delete"})
                await bench.fill(broker, TopicPartition(name, 0), [b"%d" % number])
            reader = await bench.reads(broker, names)
            for number, name in enumerate(names):
                part = TopicPartition(name, 0)
                assert await reader.consumer.log_range(part) == (0, 1)
                reader.fetch_from(part, 0)
                await reader.until(lambda part=part: reader.records[part], name)  # type: ignore[misc]
                assert reader.values(part) == [b"%d" % number]

    @needs("offsets")
    async def test_log_range(self, lab: Lab) -> None:
        """(first offset, end offset); a partition that does not exist is a BrokerError."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            consumer = (await bench.reads(broker, [part.topic])).consumer
            assert await consumer.log_range(part) == (0, 0)
            await bench.fill(broker, part, [b"x"] * 7)
            assert await consumer.log_range(part) == (0, 7)
            with pytest.raises(BrokerError):
                await consumer.log_range(TopicPartition(part.topic, 99))

    @needs("offsets", "drops_records")
    async def test_log_range_after_records_were_dropped(self, lab: Lab) -> None:
        """The first offset moves on with retention."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            await bench.fill(broker, part, [b"x"] * 10)
            await lab.truncate(part, 4)
            consumer = (await bench.reads(broker, [part.topic])).consumer
            assert await consumer.log_range(part) == (4, 10)

    @needs("offsets")
    async def test_offset_at(self, lab: Lab) -> None:
        """The first offset with a time at or after the one asked for; the end if there is none."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            can = broker.capabilities
            if not (can.seek_by_time or can.broker_side_acks):
                pytest.skip("this broker can't seek by time")
            (part,) = await bench.topic()
            reader = await bench.reads(broker, [part.topic])
            consumer = reader.consumer
            assert await consumer.offset_at(part, wall_ms() - HOUR_MS) == 0
            for value in (b"a", b"b", b"c"):
                await bench.fill(broker, part, [value, value])
                # So that the next pair has a later time.
                await asyncio.sleep(0.02)
            reader.fetch_from(part, 0)
            await reader.until(lambda: reader.ended(part, 6), "the end")
            stamps = [record.timestamp_ms for record in reader.records[part]]
            assert stamps == sorted(stamps)
            assert stamps[1] < stamps[2] <= stamps[3] < stamps[4]
            for stamp in {*stamps, stamps[2] - 1, stamps[2] + 1}:
                later = [offset for offset, each in enumerate(stamps) if each >= stamp]
                assert await consumer.offset_at(part, stamp) == (later[0] if later else 6)
            assert await consumer.offset_at(part, 0) == 0
            assert await consumer.offset_at(part, wall_ms() + HOUR_MS) == 6

    async def test_capabilities_are_data(self, lab: Lab) -> None:
        """Set before `start`, unchangeable, and consistent in themselves."""
        async with lab.bench():
            broker = lab.open()
        can = broker.capabilities
        assert isinstance(broker, Broker)
        assert isinstance(can, Capabilities)
        assert can.name
        whole = {StartPolicy.EARLIEST, StartPolicy.LATEST} <= can.start_policies
        # Without positions nobody can say where a group starts.
        assert not can.start_policies if can.broker_side_acks else whole
        assert (StartPolicy.TIMESTAMP in can.start_policies) <= can.seek_by_time
        assert can.delayed_publish == (can.delay_max_ms > 0)
        assert can.value_bytes_max > 0
        # Rule R8's marker needs room; how much more there is, is up to the broker.
        assert can.commit_metadata_chars >= 256
        for field in fields(can):
            with pytest.raises(FrozenInstanceError):
                setattr(can, field.name, None)

    async def test_healthy_connection_has_no_trouble(self, lab: Lab) -> None:
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            await bench.fill(broker, part, [b"x"])
            assert broker.conditions() == []

    async def test_start_without_a_broker_is_an_error(self, lab: Lab) -> None:
        """`start` raises BrokerError each time, and what was begun can be closed."""
        if lab.unreachable is None:
            pytest.skip("this broker can't be out of reach")
        async with lab.bench():
            broker = lab.open(lab.unreachable)
        for _ in range(2):
            with pytest.raises(BrokerError):
                await broker.start()
        async with asyncio.timeout(CLOSE_S):
            await broker.close()

    async def test_close_is_bounded_and_final(self, lab: Lab) -> None:
        """Also with a consumer in use, twice, and without a start; after it nothing is stored."""
        async with lab.bench() as bench:
            broker = await bench.broker()
            (part,) = await bench.topic()
            reader = await bench.reads(broker, [part.topic])
            reader.fetch_from(part, 0)
            async with asyncio.timeout(CLOSE_S):
                await reader.consumer.close()
                await reader.consumer.close()
                await broker.close()
                await broker.close()
                await lab.open().close()
            (result,) = await broker.publish([Outgoing(part.topic, None, b"late")])
            assert isinstance(result, NotStored)
            with pytest.raises(BrokerError):
                await broker.partitions(part.topic)
            with pytest.raises(BrokerError):
                await reader.consumer.events()
