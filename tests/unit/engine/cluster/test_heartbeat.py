"""The heartbeat: what it writes, and what it does with the answer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.base.tasks import Tasks
from ackd.engine.cluster.heartbeat import Heartbeat
from ackd.engine.cluster.members import (
    HEARTBEAT_MS,
    RIVAL_GONE_MS,
    SILENT_MS,
    UNCONFIRMED_MS,
    MemberNote,
    read_note,
    write_note,
)
from ackd.engine.partition.partition import Partition
from ackd.errors import BrokerFatalError
from ackd.store.memory import MemoryEntry
from tests.unit.engine.world import ME, NAME, TOPIC, World


@dataclass
class Owner:
    """What ownership is told."""

    world: World
    taken: list[TopicPartition] = field(default_factory=list)
    orphans: list[list[str]] = field(default_factory=list)
    dropped: int = 0

    def take(self, tp: TopicPartition) -> None:
        self.taken.append(tp)

    def drop_all(self) -> None:
        self.dropped += 1

    def retry_takes(self) -> None:
        """Nothing waits."""

    def settle_repairs(self) -> None:
        """Nothing is repaired."""

    async def take_orphans(self, orphans: list[str]) -> None:
        self.orphans.append(orphans)


@dataclass
class LiveValue:
    """What the live value is told."""

    heard: list[bytes] = field(default_factory=list)

    def received(self, there: bytes, now_ms: int) -> None:
        del now_ms
        self.heard.append(there)

    def look(self) -> None:
        """No pause ends."""

    async def repair(self) -> None:
        """The store forgets nothing."""


@dataclass
class Scene:
    """A heartbeat that runs. `ready`: partitions that may grant again."""

    world: World
    owner: Owner
    live: LiveValue
    ready: list[Partition]
    heartbeat: Heartbeat
    tasks: Tasks

    async def beats(self, count: int = 1) -> None:
        """Let so many heartbeats pass."""
        await asyncio.sleep(count * HEARTBEAT_MS / 1000 - 0.001)

    @property
    def entry(self) -> MemoryEntry:
        return self.world.data.members[NAME][ME]

    def other(self, *owned: str, silent_ms: int = 0, name: str = "pod-2") -> None:
        """Another sidecar's entry in the store."""
        seen_us = self.world.clock.now_us - silent_ms * 1_000
        entry = MemoryEntry(1, seen_us, "", owned, write_note(MemberNote(run="run-1")))
        self.world.data.members.setdefault(NAME, {})[name] = entry


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    """Registered, with one partition; it beats once a test lets time pass."""
    owner, live, ready = Owner(world), LiveValue(), list[Partition]()
    heartbeat = Heartbeat(
        world.state,
        world.context,
        world.membership,
        world.partitions,
        owner,
        live,
        ready.append,
    )
    world.state.signals.beat.connect(heartbeat.beat_soon)
    await heartbeat.register()
    await world.owns(0)
    tasks = Tasks("beat", world.context.vitals)
    tasks.start(heartbeat.run(), "run")
    yield Scene(world, owner, live, ready, heartbeat, tasks)
    await tasks.stop()
    await heartbeat.stop()


async def test_it_writes_what_it_owns_three_times_a_second(scene: Scene) -> None:
    await scene.beats()
    first_us, owned = scene.entry.seen_us, scene.entry.owned
    assert owned == (scene.world.partitions.all()[0].key.text(),)
    await scene.beats(2)
    assert scene.entry.seen_us - first_us == 2 * HEARTBEAT_MS * 1_000


async def test_r11_partitions_may_grant_when_a_heartbeat_is_confirmed(scene: Scene) -> None:
    await scene.beats(3)
    assert scene.ready == scene.world.partitions.all()  # once, not with each beat
    scene.world.store.away = True
    await asyncio.sleep(UNCONFIRMED_MS / 1000)
    assert not scene.world.membership.confirmed()
    assert len(scene.ready) == 1
    scene.world.store.away = False
    await scene.beats(2)
    assert scene.world.membership.confirmed()
    assert len(scene.ready) == 2


async def test_a_change_is_written_at_once(scene: Scene) -> None:
    await scene.beats()
    scene.world.membership.handed_over(["a"])
    for _ in range(5):
        await asyncio.sleep(0)
    assert read_note(scene.entry.note).handed == ["a"]


async def test_r5_what_is_due_between_two_heartbeats_is_taken_back_then(scene: Scene) -> None:
    await scene.beats()
    scene.world.membership.handed_over(["a"], back_ms=50)
    await asyncio.sleep(0.049)
    assert scene.owner.orphans == []
    await asyncio.sleep(0.002)
    assert scene.owner.orphans == [["a"]]


async def test_r5_the_partitions_of_a_silent_sidecar_are_taken(scene: Scene) -> None:
    await scene.beats(SILENT_MS // HEARTBEAT_MS + 1)
    scene.other("a", silent_ms=SILENT_MS)
    await scene.beats(1)
    assert scene.owner.orphans == [["a"]]


@pytest.mark.parametrize("assigned", [False, True])
async def test_it_reads_a_record_again_that_another_sidecar_lists_too(
    scene: Scene, *, assigned: bool
) -> None:
    """If the group did not assign it the partition: then nobody tells who took it away. Once, as
    long as the other one says nothing new.
    """
    [partition] = scene.world.partitions.all()
    if assigned:
        scene.world.partitions.assign(partition.tp)
    await scene.beats(2)
    assert not partition.needs_reread
    scene.other(partition.key.text())
    await scene.beats(1)
    assert partition.needs_reread is not assigned
    await scene.beats(3)
    assert scene.world.events.seen.count("reload") == (not assigned)


async def test_a_sidecar_that_was_cut_off_itself_takes_nothing(scene: Scene) -> None:
    """All others look silent to it."""
    scene.other("a", silent_ms=SILENT_MS)
    await scene.beats(2)
    assert scene.owner.orphans == []


async def test_r23_after_an_outage_no_lease_ends_within_the_grace(scene: Scene) -> None:
    world = scene.world
    timers = world.listens("timers")
    world.store.away = True
    await scene.beats(2)
    assert (world.state.health.store_ok, world.state.health.detail) == (
        False,
        "heartbeat: the store is away",
    )
    world.store.away = False
    await scene.beats(1)
    assert world.state.health.store_ok
    assert timers == ["timers"]
    left_ms = world.membership.grace_until_ms - world.clock.monotonic_ms()
    assert world.context.grace_ms - HEARTBEAT_MS <= left_ms <= world.context.grace_ms


async def test_r34_without_the_store_it_leaves_the_group_if_told_to(scene: Scene) -> None:
    world = scene.world
    world.sets(leave_without_store_ms=2_000)
    await scene.beats(1)
    world.store.away = True
    await asyncio.sleep(1.7)
    assert scene.owner.dropped == 0
    await asyncio.sleep(0.5)
    assert scene.owner.dropped == 1
    assert BrokerFatalError.__name__ in world.context.vitals.failure


async def test_r24_a_newer_process_of_its_name_stops_it_until_that_is_gone(scene: Scene) -> None:
    world = scene.world
    await scene.beats()
    tp = TopicPartition(TOPIC, 0)
    world.partitions.assigned[tp] = None
    boot = await world.store.register(NAME, ME)
    await world.store.heartbeat(NAME, ME, boot, (), "")
    await scene.beats(2)
    assert (world.state.health.superseded, scene.owner.taken) == (True, [])
    assert scene.owner.dropped > 0
    await asyncio.sleep(RIVAL_GONE_MS / 1000)
    assert (world.state.health.superseded, scene.owner.taken) == (False, [tp])
    assert world.partitions.me.boot > boot


async def test_r10_after_a_change_of_the_run_records_are_read_again_before_it_says_so(
    scene: Scene,
) -> None:
    world = scene.world
    await scene.beats(2)
    world.store.runs_as = "run-2"
    await scene.beats(2)
    partition = world.partitions.all()[0]
    assert partition.ledger.dirty
    assert world.events.seen.count("reload") == 1
    assert world.membership.replaying()
    world.partitions.remove(partition)  # it is read again, by another part
    await scene.beats(2)
    assert not world.membership.replaying()
    assert read_note(scene.entry.note).run == "run-2"


async def test_the_live_value_hears_of_each_answer(scene: Scene) -> None:
    scene.world.data.live[NAME] = b"{}"
    await scene.beats(2)
    assert scene.live.heard[-1] == b"{}"


async def test_who_leaves_says_so_and_beats_no_more(scene: Scene) -> None:
    await scene.beats()
    await scene.heartbeat.leave()
    note, seen_us = read_note(scene.entry.note), scene.entry.seen_us
    assert note.left
    assert scene.entry.owned == tuple(scene.world.partitions.keys())
    await scene.beats(5)
    assert scene.entry.seen_us == seen_us


async def test_dead_entries_with_nothing_left_are_forgotten(scene: Scene) -> None:
    await scene.beats(SILENT_MS // HEARTBEAT_MS + 1)
    scene.other(silent_ms=20_000)
    scene.other("a", silent_ms=20_000, name="pod-3")
    await scene.beats(2)
    assert set(scene.world.data.members[NAME]) == {ME, "pod-3"}
