"""What operators change: pauses, settings, halts; the newest version wins."""

import pytest
from msgspec.structs import replace

from ackd.api.control import Pause
from ackd.engine.base.live import Halt, Live, read_live, write_live
from ackd.engine.control.control import Control
from ackd.errors import StoreError
from tests.unit.engine.world import NAME, World


@pytest.fixture
def control(world: World) -> Control:
    return Control(world.state, world.context)


def hears(world: World, control: Control, live: Live, *, ahead_ms: int = 0) -> None:
    """A heartbeat's answer brings what another sidecar has written."""
    world.data.live[NAME] = write_live(live)
    control.received(world.data.live[NAME], world.clock.wall_ms() + ahead_ms)


async def test_a_pause_of_the_group_is_everybodys_and_ends_with_resume(
    world: World, control: Control
) -> None:
    await control.pause("group", "upgrade", None)
    assert (world.state.paused, control.group_paused) == (True, True)
    assert [each.reason for each in control.pauses()] == ["upgrade"]
    deliver = world.listens("deliver")
    await control.resume("group")
    assert (world.state.paused, control.group_paused) == (False, False)
    assert deliver


async def test_who_has_not_heard_of_a_pause_yet_can_end_it(world: World, control: Control) -> None:
    world.data.live[NAME] = write_live(Live(4, pause=Pause("group", "elsewhere", 0)))
    await control.resume("group")
    assert read_live(world.data.live[NAME]) == Live(5)


async def test_the_two_scopes_do_not_touch_each_other(world: World, control: Control) -> None:
    await control.pause("pod", "mine", None)
    assert (world.state.paused_everywhere, control.group_paused) == (False, False)
    await control.pause("group", "all", None)
    assert world.state.paused_everywhere
    deliver = world.listens("deliver")
    await control.resume("group")
    assert [each.reason for each in control.pauses()] == ["mine"]
    assert (world.state.paused_everywhere, "deliver" in deliver) == (False, True)
    await control.resume("pod")
    assert not world.state.paused


async def test_a_pause_ends_by_the_stores_clock(world: World, control: Control) -> None:
    hears(world, control, Live(), ahead_ms=60_000)
    await control.pause("group", "", for_ms=1_000)
    until_ms = control.pauses()[0].until_ms
    assert until_ms == world.clock.wall_ms() + 61_000
    world.clock.pass_ms(999)
    control.look()
    assert world.state.paused
    deliver = world.listens("deliver")
    world.clock.pass_ms(1)
    control.look()
    assert (world.state.paused, deliver) == (False, ["deliver"])
    control.look()
    assert deliver == ["deliver"]


async def test_an_application_that_is_unwell_is_a_pause_of_its_own(
    world: World, control: Control
) -> None:
    control.pause_unhealthy("its check fails")
    await control.resume("pod")
    assert world.state.paused
    control.pause_unhealthy(None)
    assert not world.state.paused


@pytest.mark.parametrize(("known", "heard", "kept"), [(2, 3, 3), (3, 3, 3), (3, 2, 3)])
async def test_the_newest_version_wins(
    world: World, control: Control, known: int, heard: int, kept: int
) -> None:
    hears(world, control, Live(known, {"lease_ms": 1_000 * known}))
    hears(world, control, Live(heard, {"lease_ms": 1_000 * heard}))
    assert world.state.live.version == kept
    assert world.state.settings.lease_ms == 1_000 * kept


async def test_what_nobody_can_read_changes_nothing(world: World, control: Control) -> None:
    hears(world, control, Live(2, {"lease_ms": 7_000}))
    control.received(b"{", world.clock.wall_ms())
    assert (world.state.live.version, world.state.settings.lease_ms) == (2, 7_000)


async def test_a_setting_that_this_sidecar_cannot_have_is_left_out(
    world: World, control: Control
) -> None:
    hears(world, control, Live(1, {"lease_ms": 5_000, "of_the_future": 1, "attempts_max": -1}))
    assert world.state.settings.lease_ms == 5_000
    assert world.state.settings.attempts_max == world.state.configured.attempts_max
    assert control.in_force().sources == {"lease_ms": "live"}


async def test_a_store_that_forgot_gets_the_newest_back(
    world: World, control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    await control.configure({"lease_ms": "7s"})
    written = world.data.live[NAME]
    control.received(b"", world.clock.wall_ms())
    world.data.live[NAME] = b""
    await control.repair()
    assert world.data.live[NAME] == written
    await control.repair()  # nothing is lacking
    assert caplog.text.count("lost the live settings") == 1


async def test_two_who_change_at_once_both_count(world: World, control: Control) -> None:
    """Another sidecar has written since; its change is read and built upon."""
    world.data.live[NAME] = write_live(Live(4, {"attempts_max": 3}))
    await control.configure({"lease_ms": "7s"})
    assert world.state.live.version == 5
    assert world.state.settings.attempts_max == 3
    assert world.state.settings.lease_ms == 7_000
    await control.configure({"attempts_max": None})
    assert world.state.settings.attempts_max == world.state.configured.attempts_max
    assert world.state.live.settings == {"lease_ms": "7s"}


async def test_who_never_gets_a_turn_says_so(world: World, control: Control) -> None:
    """Somebody else writes between each two looks."""

    def edit(live: Live) -> Live:
        newer = replace(live, version=live.version + 1, settings={"buffer_max": live.version + 9})
        world.data.live[NAME] = write_live(newer)
        return live

    with pytest.raises(StoreError, match="by others all the time"):
        await control.change(edit)


async def test_observers_hear_of_each_version_and_writers_of_their_own(
    world: World, control: Control
) -> None:
    seen: list[tuple[str, int, int]] = []
    control.connect(lambda a, b: seen.append(("all", a.version, b.version)))
    control.connect_writer(lambda a, b: seen.append(("own", a.version, b.version)))
    hears(world, control, Live(3))
    hears(world, control, Live(3))
    assert seen == [("all", 0, 3)]
    await control.pause("group", "", None)
    assert seen[1:] == [("own", 3, 4), ("all", 3, 4)]


async def test_a_halt_holds_everything_until_its_own_operation_ends_it(
    world: World, control: Control
) -> None:
    assert control.halted_for == ""
    await control.halt("op-1")
    assert (control.halted_for, world.state.paused, control.group_paused) == ("op-1", True, False)
    await control.end_halt("op-2")
    assert control.halted_for == "op-1"
    await control.end_halt("op-1")
    assert (control.halted_for, world.state.paused) == ("", False)


async def test_a_new_run_of_the_subscription_knows_what_the_last_one_knew(
    world: World, control: Control
) -> None:
    hears(world, control, Live(3, halt=Halt("op", 1)), ahead_ms=5_000)
    await control.pause("pod", "mine", None)
    again = Control(world.state, world.context)
    again.inherit(control)
    assert [each.reason for each in again.pauses()] == ["mine", "operation op is running"]
    assert again.skew_ms() == control.skew_ms() == 5_000
