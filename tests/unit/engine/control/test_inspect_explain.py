"""What operators see of messages and partitions: what is in flight, what holds it up, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackd.core.ledger.entry import Entry, EntryStatus
from ackd.core.ledger.send_back import Rules
from ackd.engine.base.spill_file import Held, Stub
from ackd.engine.control import inspect as inspect_module
from ackd.engine.control.inspect import Inspector, flat
from ackd.engine.control.lag import Lag
from ackd.engine.control.partition_gauges import END_MS, PartitionGauges
from ackd.engine.control.stable_offset_lag import SHOWN_MS, StableOffsetLag
from ackd.engine.partition.ordering import position_of
from ackd.engine.partition.partition import Partition, Policy
from ackd.engine.retry.copier import DEAD, RETRY, Copier
from ackd.engine.retry.own_topic import RetryTopic, retry_topic
from ackd.ports import Member, Members, Record, TopicInfo
from tests.unit.engine.copies import copies
from tests.unit.engine.world import LEASE_MS, NAME, PLAIN, TOPIC, TOPIC_ID, TestConsumer, World

KEYED = PLAIN._replace(position_of=position_of("key", NAME, retry_copies=False))
SECOND_MS = 1_000


class NoLimits:
    """Stands for `DeliveryLimits`."""

    def words(self) -> list[str]:
        return ["paused"]


class TransactionConsumer(TestConsumer):
    """A log whose readers are held at its end."""

    real_end = 9

    async def log_end(self, partition: object) -> int:
        del partition
        return self.real_end


class Scene:
    """One sidecar's view of its partitions."""

    def __init__(self, world: World) -> None:
        self.world = world
        bodies, _ = copies(world)
        topic = retry_topic(world.broker, NAME, world.state.settings)
        self.back = Copier(world.state, world.context, RETRY, topic, bodies, lambda *_: None)
        self.dead = Copier(world.state, world.context, DEAD, topic, bodies, lambda *_: None)
        self.held_ends = StableOffsetLag(world.clock)
        self.inspector = Inspector(
            world.state,
            world.context,
            world.partitions,
            self.back,
            self.dead,
            self.held_ends,
            None,
            NoLimits(),  # type: ignore[arg-type]
            RetryTopic(world.state, world.context),
        )
        self.partition: Partition

    def entry(self, offset: int) -> Entry[Held]:
        found = self.partition.ledger.entry(offset)
        assert found is not None
        return found

    async def released_by(self) -> str:
        (held,) = (await self.inspector.explain()).partitions
        return held.released_by


@pytest.fixture
async def scene(world: World) -> Scene:
    """Five messages, of which two are under lease."""
    scene = Scene(world)
    scene.partition = await world.owns(0, range(5))
    await world.leases(scene.partition, 2, holder="worker-3")
    return scene


# --- in flight


async def test_what_was_delivered_is_in_flight_oldest_first(scene: Scene, world: World) -> None:
    world.clock.pass_ms(5 * SECOND_MS)
    await world.leases(scene.partition, 1, holder="late")
    found = await scene.inspector.in_flight(0, 10)
    assert [each.id for each in found] == ["orders/0/0", "orders/0/1", "orders/0/2"]
    first = found[0]
    assert (first.state, first.attempt, first.holder) == ("leased", 1, "worker-3")
    assert (first.since_ms, first.deadline_ms) == (3_600_000, 3_600_000 + LEASE_MS)
    assert (first.due_ms, first.error) == (None, None)


async def test_the_age_of_a_message_is_told_as_far_as_its_body_tells(
    scene: Scene, world: World
) -> None:
    """In memory, on the disk (also of a retry copy, whose own age is another), not fetched yet."""
    first, second, third = (world.partitions.all()[0].ledger.entries[each] for each in range(3))
    await world.leases(scene.partition, 1)
    assert isinstance(first.body, Record)
    first.body.timestamp_ms = 5_000
    on_disk = Stub(Record(1, None, b"", (), 7_000))
    second.body = on_disk
    third.body = None

    async def published() -> list[int | None]:
        return [each.published_ms for each in await scene.inspector.in_flight(0, 10)]

    assert await published() == [5_000, 7_000, None]
    on_disk.stands_for_copy("orders/0/1", 1, 6_000)
    first.body.timestamp_ms = 0
    assert await published() == [None, 6_000, None]


async def test_i8_only_so_many_and_only_so_old(scene: Scene, world: World) -> None:
    world.clock.pass_ms(5 * SECOND_MS)
    await world.leases(scene.partition, 1)
    assert [each.id for each in (await scene.inspector.in_flight(5 * SECOND_MS, 10))] == [
        "orders/0/0",
        "orders/0/1",
    ]
    assert [each.id for each in (await scene.inspector.in_flight(0, 1))] == ["orders/0/0"]


async def test_a_first_delivery_in_the_future_is_shown_too(scene: Scene) -> None:
    """Another client's delay may say so."""
    scene.entry(0).first_s += 3_600
    assert len(await scene.inspector.in_flight(0, 10)) == 2


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (EntryStatus.WAITING, "retrying"),
        (EntryStatus.DEAD, "dead"),
        (EntryStatus.EXHAUSTED, "dead"),
        (EntryStatus.MOVING, "moving"),
        (EntryStatus.CLAIMING, "waiting_for_lease"),
        (EntryStatus.PLACING, "retrying"),
    ],
)
async def test_each_state_has_a_word_and_the_time_that_counts(
    scene: Scene, status: EntryStatus, state: str
) -> None:
    entry = scene.entry(0)
    entry.status, entry.when_ms = status, 77
    (found,) = [each for each in (await scene.inspector.in_flight(0, 9)) if each.id == "orders/0/0"]
    assert found.state == state
    assert (found.deadline_ms == 77) is (status is EntryStatus.CLAIMING)
    assert (found.due_ms == 77) is (status is EntryStatus.WAITING)


# --- what holds a partition


async def test_nothing_holds_what_is_finished(scene: Scene) -> None:
    scene.partition.ledger.acked(range(5))
    (held,) = (await scene.inspector.explain()).partitions
    assert (held.topic, held.partition, held.watermark, held.head) == (TOPIC, 0, 5, None)
    assert held.released_by.startswith("nothing holds it")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (EntryStatus.LEASED, "an ack, or the end of its lease"),
        (EntryStatus.WAITING, "its delay ends"),
        (EntryStatus.DEAD, "the dead-letter topic"),
        (EntryStatus.EXHAUSTED, "the dead-letter topic"),
        (EntryStatus.MOVING, "the retry topic"),
        (EntryStatus.CLAIMING, "its earlier lease ends"),
        (EntryStatus.READY, "the next receive gets it"),
    ],
)
async def test_what_moves_the_head_on_is_said_in_words(
    scene: Scene, status: EntryStatus, words: str
) -> None:
    scene.entry(0).status = status
    assert words in await scene.released_by()


async def test_a_head_without_its_body_is_fetched_first(scene: Scene) -> None:
    entry = scene.entry(0)
    entry.status, entry.body = EntryStatus.READY, None
    assert "fetches it" in await scene.released_by()


async def test_i5_when_a_head_moves_to_the_retry_topic_is_said(scene: Scene, world: World) -> None:
    assert "there is no retry topic yet" in await scene.released_by()
    world.sets(retry_topic=False)
    assert "retry_topic is off" in await scene.released_by()
    scene.partition.go_by(Policy(Rules(60_000, 1, 1_000), 0, retry_copies=False))
    world.clock.pass_ms(20 * SECOND_MS)
    scene.partition.ledger.send_back.stuck(world.clock.monotonic_ms())
    assert "it moves to the retry topic in 41 s" in await scene.released_by()


async def test_while_the_record_is_read_again_nothing_else_is_said(scene: Scene) -> None:
    scene.partition.ledger.must_reread()
    assert "reading the record" in await scene.released_by()


async def test_limits_are_those_of_who_holds_deliveries_back(scene: Scene) -> None:
    found = await scene.inspector.explain()
    assert (found.subscription, found.limits, found.repeats) == (NAME, ["paused"], 0)


# --- keys


async def test_r19_the_longest_queues_of_keys_are_named_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(world)
    scene.partition = await world.owns(0, policy=KEYED)
    intake = scene.partition.ledger.intake
    keys = [b"a", b"b", b"b", b"c", b"c", b"c"]
    intake.fetched(intake.session, [Record(at, key, b"v", (), 1) for at, key in enumerate(keys)])
    found = (await scene.inspector.explain()).ordered
    assert [(each.key, each.waiting, each.blocked) for each in found] == [
        ("c", 2, False),
        ("b", 1, False),
    ]
    assert found[0].head.id == "orders/0/3"
    monkeypatch.setattr(inspect_module, "KEYS_MAX", 1)
    assert [each.key for each in (await scene.inspector.explain()).ordered] == ["c"]
    body = scene.entry(3).body
    assert isinstance(body, Record)
    scene.entry(3).body = Stub(body)
    assert (await scene.inspector.explain()).ordered[0].key is None


# --- ends of logs


async def test_r33_an_open_transaction_is_named_once_it_is_not_normal(world: World) -> None:
    scene = Scene(world)
    scene.partition = partition = await world.owns(0, range(5))
    partition.ledger.acked(range(5))
    consumer = TransactionConsumer()
    await scene.held_ends.look(consumer, partition, 5)
    world.clock.pass_ms(SHOWN_MS - 1)
    assert "nothing holds it" in await scene.released_by()
    world.clock.pass_ms(1)
    assert "open transaction at offset 5 for 10 s or longer: 4 offsets" in await scene.released_by()
    consumer.real_end = 12
    await scene.held_ends.look(consumer, partition, 5)
    assert "10 s or longer: 7 offsets" in await scene.released_by()
    await scene.held_ends.look(consumer, partition, 6)  # there is more to read first
    assert scene.held_ends.held_ms(partition) == 0
    await scene.held_ends.look(consumer, partition, 5)
    consumer.real_end = 5
    await scene.held_ends.look(consumer, partition, 5)
    assert scene.held_ends.held_ms(partition) == 0


async def test_ends_of_logs_are_asked_for_now_and_then(scene: Scene, world: World) -> None:
    tp = scene.partition.tp
    gauges = PartitionGauges(world.state, world.context, world.partitions, scene.held_ends)
    labels = {"subscription": NAME, "topic": TOPIC, "partition": "0", "retry_topic": "false"}
    world.consumer.away = True
    await gauges.ask_ends()
    assert scene.partition.end == -1
    world.consumer.away = False
    world.consumer.logs[tp] = (0, 50)
    world.clock.pass_ms(END_MS - 1)
    await gauges.ask_ends()
    assert scene.partition.end == -1
    world.clock.pass_ms(1)
    await gauges.ask_ends()
    scene.partition.ledger.acked([0])
    assert gauges.fill() == {(NAME, TOPIC, "0", "false")}
    assert world.count("ackd_lag_messages", **labels) == 49
    assert world.count("ackd_watermark_offset", **labels) == 1
    assert world.count("ackd_oldest_unfinished_age_seconds", **labels) == END_MS / 1000
    world.consumer.logs[tp] = (0, 40)
    world.clock.pass_ms(END_MS)
    await gauges.ask_ends()
    assert scene.partition.end == 50  # fetching saw it


async def test_progress_of_own_partitions_and_owners_of_the_others(
    scene: Scene, world: World
) -> None:
    world.topics.known = {TOPIC: TopicInfo(TOPIC, TOPIC_ID, 4)}
    world.consumer.logs[scene.partition.tp] = (0, 50)
    scene.partition.ledger.acked([1, 3])
    scene.entry(0).status = EntryStatus.WAITING
    lag = Lag(world.state, world.context, world.partitions, world.topics, world.membership)
    (row,) = await lag.rows()
    assert (row.owner, row.end, row.watermark, row.done_above) == ("pod-1", 50, 0, 2)
    assert (row.ready, row.retrying) == (2, 1)
    assert row.oldest_age_ms == world.clock.wall_ms() - 1_000
    world.consumer.away = True
    world.consumer.logs.clear()
    (row,) = await lag.rows()
    assert row.end == 50  # better than no answer


async def test_a_topic_that_was_made_later_is_named_though_nothing_of_it_is_owned_here(
    world: World,
) -> None:
    """As the retry topic, whose partitions others have."""
    record = f"{NAME}:{TOPIC_ID.hex()}:3"
    member = Member("pod-2", 1, 0, "", (record,), "")
    world.membership.view.update(Members(1_000, (member,), superseded=False))
    world.consumer.known = [TopicInfo(TOPIC, TOPIC_ID, 4)]
    lag = Lag(world.state, world.context, world.partitions, world.topics, world.membership)
    world.topics.known = {}
    (row,) = await lag.rows()
    assert (row.topic, row.partition, row.owner) == (TOPIC, 3, "pod-2")


async def test_settings_have_flat_names(world: World) -> None:
    found = flat(replace(world.state.settings, lease_ms=7))
    assert found["lease_ms"] == 7
    assert "dedup.key" in found
