"""A sidecar leaves: its partitions go to those who stay, whatever store and broker say (R34)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.cluster.members import MemberNote, write_note
from ackd.engine.delivery.deadline_timers import DeadlineTimers
from ackd.engine.delivery.rate_limit import RateLimit
from ackd.engine.delivery.waiters import WaiterQueue
from ackd.engine.delivery.waits_elsewhere import WaitsElsewhere
from ackd.engine.delivery.window_pressure import WindowPressure
from ackd.engine.departure import Departure, LastReport
from ackd.engine.ownership.commit import Committer
from ackd.engine.ownership.hand_over import HANDOVER_MS
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError
from ackd.ports import Member, Members
from tests.unit.engine.copies import copies
from tests.unit.engine.ownerships import ownership_of
from tests.unit.engine.world import TOPIC, World

TP = TopicPartition(TOPIC, 0)


class Scene:
    """A sidecar that has joined. `left_group`: how often it left the broker's group, which it may
    once `may_leave` is set.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        state, context, partitions = world.state, world.context, world.partitions
        state.health.group_joined()
        rate = RateLimit(state, context, world.membership, lambda: None)
        self.elsewhere = WaitsElsewhere(state, world.breaker, WaiterQueue(), rate)
        self.dropped: list[Partition] = []
        self.left_group = 0
        self.may_leave = asyncio.Event()
        self.may_leave.set()
        bodies, claims = copies(world)
        self.timers = DeadlineTimers(
            state,
            context,
            partitions,
            world.membership,
            world.dispatcher(),
            WindowPressure(state, context, partitions, lambda: False, lambda: False),
            lambda *_: None,
            bodies,
            claims,
            lambda: 0,
        )
        self.committer = Committer(state, context, partitions, lambda *_: None)
        self.departure = Departure(
            state,
            partitions,
            self.elsewhere,
            ownership_of(world, self._commit_first, on_dropped=(self.dropped.append,)),
            world.membership,
            None,
            LastReport(self.timers, self.committer, traced=False),
            self._leave_group,
        )

    async def _commit_first(self, partition: Partition) -> None:
        """Nothing is taken here."""

    async def _leave_group(self) -> None:
        await self.may_leave.wait()
        self.left_group += 1

    def others(self, *notes: MemberNote) -> None:
        """So many other sidecars are there, and say this."""
        members = tuple(
            Member(f"pod-{number}", 1, 0, "", (), write_note(note))
            for number, note in enumerate(notes, 2)
        )
        found = Members(self.world.clock.wall_ms(), members, superseded=False)
        self.world.membership.view.update(found, [], beating_ms=60_000)

    async def owns(self, offsets: Sequence[int] = ()) -> Partition:
        """An assigned partition."""
        self.world.partitions.assign(TP)
        return await self.world.owns(0, offsets)


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    yield scene
    scene.may_leave.set()
    await scene.departure.stop()


async def test_all_partitions_go_and_the_others_hear_of_it(scene: Scene) -> None:
    partition = await scene.owns(range(3))
    scene.others(MemberNote())
    beat = scene.world.listens("beat")
    await scene.departure.leave()
    world = scene.world
    assert (world.partitions.all(), [*world.partitions.assigned]) == ([], [])
    assert scene.dropped == [partition]
    note = world.membership.note
    assert (note.leaving, note.left, note.handed) == (True, False, [partition.key.text()])
    assert beat
    assert scene.elsewhere.only
    assert scene.departure.gone


class Sharing:
    """What is left at each call of `decline`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.declined: list[list[Partition]] = []

    def decline(self) -> None:
        self.declined.append(self._world.partitions.all())


async def test_receives_of_others_end_once_the_partitions_are_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait at the new owners then, and get what is ready there."""
    sharing = Sharing(scene.world)
    monkeypatch.setattr(scene.departure, "_sharing", sharing)
    await scene.owns(range(3))
    scene.others(MemberNote())
    await scene.departure.leave()
    assert sharing.declined == [[]]


async def test_progress_is_committed_before_a_partition_goes(scene: Scene) -> None:
    await scene.owns()
    scene.others(MemberNote())
    await scene.departure.leave()
    assert TP in scene.world.consumer.positions


@pytest.mark.parametrize("notes", [[], [MemberNote(leaving=True)]])
async def test_who_is_the_last_keeps_its_partitions(scene: Scene, notes: list[MemberNote]) -> None:
    partition = await scene.owns(range(3))
    scene.others(*notes)
    await scene.departure.leave()
    assert scene.world.partitions.all() == [partition]
    assert (scene.departure.gone, scene.elsewhere.only) == (False, False)
    scene.others(*notes, MemberNote())  # somebody comes: the next call gives all away
    await scene.departure.leave()
    assert scene.departure.gone
    assert scene.world.partitions.all() == []


async def test_who_has_not_joined_has_nothing_to_leave(scene: Scene) -> None:
    scene.world.state.health.joined = False
    scene.others(MemberNote())
    await scene.departure.leave()
    assert not scene.departure.gone
    assert scene.left_group == 0


@pytest.mark.parametrize("away", ["store", "broker"])
async def test_partitions_go_without_a_last_commit_too(
    scene: Scene, away: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The store has the progress, and whoever takes them reads it there."""
    partition = await scene.owns(range(3))
    scene.others(MemberNote())
    if away == "broker":
        scene.world.consumer.away = True
    else:
        scene.committer.commit = refuse  # type: ignore[method-assign]
    with caplog.at_level("INFO", "ackd.engine"):
        await scene.departure.leave()
    assert "without a last commit" in caplog.text
    assert scene.dropped == [partition]
    assert scene.world.membership.note.handed == [partition.key.text()]


async def refuse(*_: object, **__: object) -> None:
    raise StoreError("the store is away")


async def test_a_broker_that_does_not_answer_holds_nobody_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.owns(range(3))
    scene.others(MemberNote())

    async def never(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(scene.world.consumer, "commit", never)
    begin_ms = scene.world.clock.monotonic_ms()
    await scene.departure.leave()
    assert scene.world.clock.monotonic_ms() - begin_ms <= HANDOVER_MS + 10
    assert scene.world.partitions.all() == []


async def test_it_leaves_once_and_stopping_waits_until_the_group_was_left(scene: Scene) -> None:
    scene.others(MemberNote())
    scene.may_leave.clear()
    await scene.departure.leave()
    await scene.departure.leave()
    stopping = asyncio.get_running_loop().create_task(scene.departure.stop())
    await asyncio.sleep(1)
    assert (stopping.done(), scene.left_group) == (False, 0)
    scene.may_leave.set()
    await stopping
    assert scene.left_group == 1


async def test_without_links_receives_get_nothing_from_others(scene: Scene) -> None:
    scene.others(MemberNote())
    await scene.departure.leave()
    assert not scene.departure.serves
