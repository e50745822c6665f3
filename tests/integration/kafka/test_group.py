"""Membership: assignments, rebalances, static ids, patterns, commits; under both protocols."""

import asyncio
import struct
import time
from concurrent.futures import Future

import pytest
from confluent_kafka import Consumer as Client
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError, BugError, ConfigError
from ackd.ports import Assigned, Broker, Committed, ConsumerSpec, Fetched, Outgoing, Revoked
from ackd.ports.own_topics import dead_letter_topic, retry_topic
from ackd_adapters.kafka import idle_positions
from ackd_adapters.kafka.consumer import KafkaConsumer
from ackd_adapters.kafka.worker import settled
from ackd_testing import Reader
from tests.integration.kafka.conftest import Connect, Join, MakeTopic
from tests.support.kafka import Kafka
from tests.support.kafka.fill import fill, store

pytestmark = pytest.mark.kafka
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(params=PROTOCOLS)
async def grouped(request: pytest.FixtureRequest, connect: Connect) -> Broker:
    """A connection with each of the two group protocols."""
    return await connect(group_protocol=request.param)


def partitions(*topics: tuple[str, int]) -> set[TopicPartition]:
    """All partitions of topics with so many each."""
    return {TopicPartition(name, each) for name, count in topics for each in range(count)}


async def both_until(first: Reader, second: Reader, timeout_s: float, want: object) -> None:
    """Take both members' events until all is shared out between them."""
    async with asyncio.timeout(timeout_s):
        while not (
            first.assigned
            and second.assigned
            and not first.assigned & second.assigned
            and first.assigned | second.assigned == want
        ):
            await first.during(0.05)
            await second.during(0.05)


async def test_several_topics_are_assigned(grouped: Broker, join: Join, topic: MakeTopic) -> None:
    names = [topic(3), topic(2)]
    reader = await join(grouped, names, names[0])
    want = partitions((names[0], 3), (names[1], 2))
    await reader.until(lambda: reader.assigned == want, "all partitions of both")
    found = {each.topic: each.partitions for each in await reader.consumer.topics()}
    assert found == {names[0]: 3, names[1]: 2}


async def test_member_itself_never_reads(
    grouped: Broker, join: Join, topic: MakeTopic, kafka: Kafka
) -> None:
    name = topic(1)
    fill(kafka.bootstrap, name, 0, [b"x" * 1000] * 5000)
    reader = await join(grouped, [name], name)
    await reader.until(lambda: reader.assigned, "assigned")
    await reader.during(0.5)
    assert isinstance(reader.consumer, KafkaConsumer)
    member = reader.consumer._member
    positions: Future[list[ClientPartition]] = Future()
    asked = [ClientPartition(name, 0)]
    member.commands.put(lambda: positions.set_result(member._client.position(asked)))
    assert (await settled(positions))[0].offset <= 0


async def test_rebalance_shares_out_and_disturbs_no_fetch(
    grouped: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic(4)
    want = partitions((name, 4))
    first = await join(grouped, [name], name)
    await first.until(lambda: first.assigned == want, "all")
    for part in want:
        first.fetch_from(part, 0)
    published = 0

    async def publish() -> None:
        nonlocal published
        for part in sorted(want):
            await store(grouped, Outgoing(name, None, b"%d" % published, (), part.partition))
        published += 1

    await publish()
    second = await join(grouped, [name], name)
    async with asyncio.timeout(60):
        while len(first.assigned) != 2 or len(second.assigned) != 2:
            await publish()
            await first.during(0.02)
            await second.during(0.02)
    assert first.assigned | second.assigned == want
    assert first.of(Revoked)
    # Fetched as if nothing had happened, what went to the other one included: same sessions, all.
    await first.until(lambda: all(first.ended(part, published) for part in want), "all ends")
    for part in want:
        assert first.offsets(part) == list(range(published))
        assert len({event.session for event in first.of(Fetched) if event.partition == part}) == 1
    await second.consumer.close()
    await first.until(lambda: first.assigned == want, "all again, after an orderly leave")


async def test_partitions_of_the_retry_topic_follow_those_of_a_topic_that_grows(
    grouped: Broker, join: Join, topic: MakeTopic, kafka: Kafka
) -> None:
    """They go with partitions of the topic, so they are shared anew when it has more of them."""
    name, retry = topic(1), topic(2)
    readers = [await join(grouped, [name], name) for _ in range(2)]
    for each in readers:
        await each.consumer.also(retry)
    whole = partitions((name, 1), (retry, 2))
    await sizes(readers, {0, 3})
    kafka.admin().create_partitions([NewPartitions(name, 2)])[name].result(60)
    whole = partitions((name, 2), (retry, 2))
    await sizes(readers, {2})
    assert readers[0].assigned | readers[1].assigned == whole
    for each in readers:
        assert {at.topic for at in each.assigned} == {name, retry}


async def sizes(readers: list[Reader], want: set[int]) -> None:
    """Wait until the members have so many partitions each."""
    async with asyncio.timeout(60):
        while {len(each.assigned) for each in readers} != want:
            for each in readers:
                await each.during(0.05)


async def test_idle_positions_of_the_retry_topic_are_committed_again(
    grouped: Broker,
    join: Join,
    topic: MakeTopic,
    kafka: Kafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group does not subscribe to it, so the broker would forget them after a week."""
    monkeypatch.setattr(idle_positions, "KEEP_S", 0.1)
    name, retry = topic(1), topic(1)
    reader = await join(grouped, [name], name)
    await reader.consumer.also(retry)
    both = partitions((name, 1), (retry, 1))
    await reader.until(lambda: reader.assigned == both, "both")
    await reader.consumer.commit({at: Committed(7, "mine") for at in both})
    async with asyncio.timeout(60):
        while await asyncio.to_thread(commits, kafka, retry) < 3:
            await reader.during(0.2)
    assert commits(kafka, name) == 1
    assert await reader.consumer.committed(list(both)) == dict.fromkeys(both, Committed(7, "mine"))


def commits(kafka: Kafka, topic: str) -> int:
    """How often positions of the topic's only partition were committed, from the broker's log."""
    place = struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", 0)
    client = Client({"bootstrap.servers": kafka.bootstrap, "group.id": "looks-at-commits"})
    try:
        parts = client.list_topics("__consumer_offsets").topics["__consumer_offsets"].partitions
        client.assign([ClientPartition("__consumer_offsets", each, 0) for each in parts])
        found, empty = 0, 0
        while empty < 2:
            messages = client.consume(1_000, 0.2)
            found += sum((each.key() or b"").endswith(place) for each in messages)
            empty = 0 if messages else empty + 1
        return found
    finally:
        client.close()


async def test_pattern_sees_new_topics_and_partitions_but_never_ackds_own(
    grouped: Broker, join: Join, topic: MakeTopic, kafka: Kafka
) -> None:
    name = topic(1)
    base = name.rsplit(".", 1)[0]
    group = f"{base}.grp"
    own = [retry_topic(group), dead_letter_topic(group)]
    for each in own:
        await grouped.ensure_topic(each, {"partitions": "1", "replication_factor": "1"})
    reader = await join(grouped, ["^.*" + base.replace(".", r"\.")], group)
    await reader.until(lambda: TopicPartition(name, 0) in reader.assigned, "what is there")
    later = topic(2)
    await reader.until(lambda: partitions((later, 2)) <= reader.assigned, "a topic that came later")
    admin: AdminClient = kafka.admin()
    admin.create_partitions([NewPartitions(name, 3)])[name].result(60)
    await reader.until(
        lambda: partitions((name, 3)) <= reader.assigned, "partitions that came later"
    )
    found = {each.topic for each in await reader.consumer.topics()}
    assert {name, later} <= found
    assert not found & set(own)
    assert not {part.topic for part in reader.assigned} & set(own)


async def test_pattern_without_any_topic_waits(broker: Broker, join: Join, kafka: Kafka) -> None:
    reader = await join(broker, ["^nothing-yet-"], "nothing-yet")
    await reader.during(0.3)
    assert await reader.consumer.topics() == []
    kafka.create_topic("nothing-yet-1", partitions=1)
    await reader.until(lambda: reader.assigned == partitions(("nothing-yet-1", 1)), "it comes")


async def test_r5_static_member_comes_back_without_a_rebalance(
    broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic(4)
    want = partitions((name, 4))
    first = await join(broker, [name], name, static_id="a")
    second = await join(broker, [name], name, static_id="b")
    await both_until(first, second, 60, want)
    had = set(first.assigned)
    await first.consumer.close()
    seen = len(second.events)
    again = await join(broker, [name], name, static_id="a")
    await again.until(lambda: again.assigned == had, "the same partitions")
    await second.during(2)
    changes = [event for event in second.events[seen:] if isinstance(event, Assigned | Revoked)]
    assert not changes


async def test_r24_fenced_static_member_is_fatal(
    broker: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic(1)
    first = await join(broker, [name], name, static_id="same")
    await first.until(lambda: first.assigned, "assigned")
    second = await join(broker, [name], name, static_id="same")
    await second.until(lambda: second.assigned, "the newer one has it")
    await first.until(lambda: first.condition("fenced"), "the older one is told")
    condition = first.condition("fenced")
    assert condition is not None
    assert condition.fatal
    with pytest.raises(BrokerError):
        await first.consumer.commit({TopicPartition(name, 0): Committed(1, "")})


async def test_r5_static_id_is_refused_with_kip_848(connect: Connect) -> None:
    broker = await connect(group_protocol="consumer")
    with pytest.raises(ConfigError, match="static id"):
        broker.consumer(ConsumerSpec("g", ("t",), "c", static_id="a"))


@pytest.mark.parametrize("character", ["x", "é", "中"])
async def test_commit_metadata_comes_back_whole(
    grouped: Broker, join: Join, topic: MakeTopic, character: str
) -> None:
    name = topic(3)
    zero, one, two = sorted(partitions((name, 3)))
    reader = await join(grouped, [name], name)
    await reader.until(lambda: len(reader.assigned) == 3, "all")
    longest = Committed(7, character * grouped.capabilities.commit_metadata_chars)
    await reader.consumer.commit({zero: longest, one: Committed(0, "")})
    other = await join(grouped, [name], name + "-other")
    found = await reader.consumer.committed([zero, one, two])
    assert found == {zero: longest, one: Committed(0, ""), two: Committed(-1, "")}
    assert await other.consumer.committed([zero]) == {zero: Committed(-1, "")}
    with pytest.raises(BrokerError) as caught:
        await reader.consumer.commit({zero: Committed(8, longest.metadata + character)})
    assert caught.value.facts["code"] == "OFFSET_METADATA_TOO_LARGE"
    # One of two is enough to fail, and it is not said that all is well.
    with pytest.raises(BrokerError):
        await reader.consumer.commit(
            {zero: Committed(8, longest.metadata + character), one: Committed(1, "")}
        )
    with pytest.raises(BugError):
        await reader.consumer.commit({zero: Committed(8, "a\0b")})
    assert (await reader.consumer.committed([zero]))[zero] == longest


async def test_commit_of_no_member_is_refused(
    grouped: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic(1)
    where = TopicPartition(name, 0)
    member = await join(grouped, [name], name)
    await member.until(lambda: member.assigned, "assigned")
    await member.consumer.commit({where: Committed(5, "mine")})
    stranger = await join(grouped, ["^no-topic-matches-this"], name)
    with pytest.raises(BrokerError):
        await stranger.consumer.commit({where: Committed(1, "not mine")})
    # Read without being a member.
    assert await stranger.consumer.committed([where]) == {where: Committed(5, "mine")}
    await member.consumer.close()
    with pytest.raises(BrokerError):
        await member.consumer.commit({where: Committed(6, "too late")})
    with pytest.raises(BrokerError):
        await member.consumer.events()


async def test_commits_of_a_member_keep_their_order(
    grouped: Broker, join: Join, topic: MakeTopic
) -> None:
    name = topic(1)
    where = TopicPartition(name, 0)
    reader = await join(grouped, [name], name)
    await reader.until(lambda: reader.assigned, "assigned")
    for offset in range(1, 40):
        await reader.consumer.commit({where: Committed(offset, f"at {offset}")})
    assert (await reader.consumer.committed([where]))[where] == Committed(39, "at 39")


async def test_positions_of_the_log(broker: Broker, join: Join, topic: MakeTopic) -> None:
    name = topic(1)
    where = TopicPartition(name, 0)
    reader = await join(broker, [name], name)
    assert await reader.consumer.log_range(where) == (0, 0)
    assert await reader.consumer.offset_at(where, 0) == 0
    await store(broker, *(Outgoing(name, None, b"x", (), 0) for _ in range(3)))
    await asyncio.sleep(0.02)
    middle_ms = time.time_ns() // 1_000_000
    await asyncio.sleep(0.02)
    await store(broker, *(Outgoing(name, None, b"x", (), 0) for _ in range(2)))
    assert await reader.consumer.log_range(where) == (0, 5)
    assert await reader.consumer.offset_at(where, 0) == 0
    assert await reader.consumer.offset_at(where, middle_ms) == 3
    assert await reader.consumer.offset_at(where, middle_ms + 3_600_000) == 5
    with pytest.raises(BrokerError):
        await reader.consumer.log_range(TopicPartition("no-such-topic", 0))
