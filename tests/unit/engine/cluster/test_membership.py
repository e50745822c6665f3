"""This sidecar as a member: when it may grant, what its note says, what it has to take."""

import asyncio

import pytest

from ackd.engine.cluster.members import (
    MANY,
    SILENT_MS,
    SLOW_HEARTBEAT_MS,
    UNCONFIRMED_MS,
    MemberNote,
    beat_ms,
    write_note,
)
from ackd.engine.cluster.membership import BACK_MS, HANDED_MAX, Membership
from ackd.ports import Member, Members
from tests.unit.engine.world import ME, World


def other(*owned: str, silent_ms: int = 0, **note: object) -> Member:
    written = write_note(MemberNote(**note))  # type: ignore[arg-type]
    return Member("pod-2", 1, silent_ms, "", owned, written)


def hears(world: World, *members: Member) -> None:
    """The answer to a heartbeat, of a sidecar that could beat for long."""
    found = Members(world.clock.wall_ms(), members, superseded=False)
    world.membership.view.update(found, world.membership.note.handed, beating_ms=60_000)


@pytest.fixture
def member(world: World) -> Membership:
    """Registered with boot 5."""
    world.membership.registered(5, [])
    return world.membership


async def test_r11_without_a_confirmed_heartbeat_nothing_is_granted(
    world: World, member: Membership
) -> None:
    assert not member.confirmed()
    assert member.confirmed_at(world.clock.monotonic_ms())
    assert member.confirmed()
    world.clock.pass_ms(UNCONFIRMED_MS - 1)
    assert member.confirmed()
    assert not member.confirmed_at(world.clock.monotonic_ms() - 10)  # it had the right before
    world.clock.pass_ms(UNCONFIRMED_MS - 10)
    assert not member.confirmed()


async def test_the_right_counts_from_when_the_heartbeat_was_sent(
    world: World, member: Membership
) -> None:
    """Its answer may have been on the way for long."""
    member.confirmed_at(world.clock.monotonic_ms() - UNCONFIRMED_MS)
    assert not member.confirmed()
    assert member.silent_ms() == UNCONFIRMED_MS


async def test_what_an_earlier_process_of_its_name_left_is_carried_on(world: World) -> None:
    member = world.membership
    earlier = Member(ME, 4, 0, "", ("a", "b"), write_note(MemberNote(handed=["c"])))
    member.registered(5, [earlier, other("x")])
    member.describe((), 0, 0)
    assert member.note.handed == ["a", "b", "c"]
    assert member.orphans() == ["a", "b", "c"]
    hears(world, other("b"))
    assert member.orphans() == ["a", "c"]
    member.describe(("a",), 0, 0)
    assert member.note.handed == ["c"]
    assert member.orphans() == ["c"]


async def test_r5_what_was_given_away_stays_in_the_note_until_somebody_owns_it(
    world: World, member: Membership
) -> None:
    beat = world.listens("beat")
    member.handed_over(["a", "b"])
    assert beat == ["beat"]
    member.describe((), 0, 0)
    assert member.note.handed == ["a", "b"]
    hears(world, other("a"))
    member.describe(("b",), 0, 0)
    assert member.note.handed == []


async def test_r5_what_the_group_revoked_is_taken_back_until_somebody_has_it(
    world: World, member: Membership
) -> None:
    member.handed_over(["a", "b", "c"], back_ms=BACK_MS)
    member.handed_over(["d"])
    world.clock.pass_ms(BACK_MS - 1)
    assert (member.orphans(), member.next_back_ms()) == ([], 1)
    world.clock.pass_ms(1)
    assert member.next_back_ms() is None
    hears(world, other("a"))
    assert member.orphans() == ["b", "c"]
    member.describe(("b",), 0, 0)  # it is taken
    hears(world, other())
    assert member.orphans() == ["c"]
    member.leave(left=False)
    assert member.orphans() == []


async def test_r5_who_leaves_tells_each_successor_once(world: World, member: Membership) -> None:
    hears(world, other())
    member.handed_over(["a"])
    member.describe((), 0, 0)
    assert member.successors() == set()  # it stays, and the group chooses the next owner
    member.leave(left=False)
    member.describe((), 0, 0)
    assert (member.successors(), member.successors()) == ({"pod-2"}, set())
    member.handed_over(["b"])
    assert member.successors() == set()  # no heartbeat has said so
    member.describe((), 0, 0)
    assert member.successors() == {"pod-2"}


async def test_i8_the_note_is_bounded(member: Membership) -> None:
    member.handed_over([str(each) for each in range(HANDED_MAX)])
    member.handed_over(["last"])
    assert (len(member.note.handed), member.note.handed[0]) == (HANDED_MAX, "1")


async def test_what_another_part_leaves_here_is_an_orphan_at_once(
    world: World, member: Membership
) -> None:
    beat = world.listens("beat")
    member.inherit(["a"])
    assert (member.orphans(), beat) == (["a"], ["beat"])


async def test_the_partitions_of_a_silent_sidecar_are_taken_by_the_only_other_one(
    world: World, member: Membership
) -> None:
    hears(world, other("a", silent_ms=SILENT_MS - 1))
    assert member.orphans() == []
    hears(world, other("a", silent_ms=SILENT_MS))
    assert member.orphans() == ["a"]


async def test_all_have_halted_only_by_heartbeats_of_after_the_halt(
    world: World, member: Membership
) -> None:
    since_ms = world.clock.monotonic_ms()
    hears(world, other(halted="op"))
    member.confirmed_at(since_ms - 1)
    assert not member.all_halted("op", since_ms)
    member.confirmed_at(since_ms)
    assert member.all_halted("op", since_ms)
    hears(world, other(halted="another"))
    assert not member.all_halted("op", since_ms)


async def test_r10_a_repair_ends_when_everybody_has_replayed_to_this_run(
    world: World, member: Membership
) -> None:
    assert member.all_replayed()  # alone, since it registered
    world.store.runs_as = "run-2"
    assert (member.replaying(), member.all_replayed()) == (True, False)
    member.replayed_run = "run-2"
    hears(world, other(run="run-1"))
    assert (member.replaying(), member.all_replayed()) == (False, False)
    hears(world, other(run="run-2"))
    assert member.all_replayed()
    world.store.runs_as = member.replayed_run = ""  # not connected
    hears(world)
    assert (member.replaying(), member.all_replayed()) == (False, False)


async def test_who_has_just_started_has_nothing_to_replay(world: World) -> None:
    world.store.runs_as = "run-2"
    member = Membership(world.state, world.context, MemberNote())
    assert not member.replaying()


async def test_r23_a_jump_of_the_stores_clock_is_waited_for(
    world: World, member: Membership
) -> None:
    beat = world.listens("beat")
    now_ms = world.clock.monotonic_ms()
    member.clock.seen("run-0", now_ms, now_ms, now_ms)
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(member.jump_ms())
        await asyncio.sleep(1)
        assert (asked.done(), beat) == (False, ["beat"])
        now_ms = world.clock.monotonic_ms()
        member.clock.seen(world.store.run, now_ms + 60_000, now_ms, now_ms)
    assert 59_900 < asked.result() <= 60_000


async def test_r10_a_subscription_that_is_built_again_replays_what_its_process_served(
    world: World, member: Membership
) -> None:
    assert not member.replaying()
    world.store.runs_as = "run-2"
    again = Membership(world.state, world.context, MemberNote())
    again.replayed(member.replayed_run)
    again.registered(5, [])
    assert again.replaying()
    again.replayed_run = "run-2"
    assert not again.replaying()


def test_among_many_it_beats_slower() -> None:
    assert [beat_ms(others) for others in (0, MANY - 1, MANY)] == [300, 300, SLOW_HEARTBEAT_MS]
    assert 3 * SLOW_HEARTBEAT_MS <= SILENT_MS


async def test_settings_are_compared_again_only_after_a_change(
    world: World, member: Membership
) -> None:
    looked: list[object] = []
    member.drift.look = lambda *asked: looked.append(asked)  # type: ignore[method-assign]
    members = (other(),)
    for each in (members, members, (other("a"),)):
        member.received(Members(0, each, superseded=False), (), beating_ms=60_000)
    assert len(looked) == 2
    world.state.live.settings["rate_per_s"] = 5
    member.received(Members(0, (), superseded=False), (), beating_ms=60_000)
    assert len(looked) == 3
