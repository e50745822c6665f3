"""What a sidecar says of its ready messages, and when it asks for those of others."""

import pytest

from ackd.engine.cluster.members import SLOW_HEARTBEAT_MS, MemberNote, write_note
from ackd.engine.cluster.ready_counts import PAUSE_MS, VERY_MANY, WANT_MS, ReadyCounts
from ackd.ports import READY_MAX, Member, ReadyReport
from tests.unit.engine.world import World

MANY = READY_MAX + 1


@pytest.fixture
def counts(world: World) -> ReadyCounts:
    return ReadyCounts(world.clock)


async def test_among_few_each_heartbeat_asks(counts: ReadyCounts) -> None:
    for _ in range(2):
        assert counts.report(5, READY_MAX) == ReadyReport(4, wants=True)


async def test_among_many_it_asks_for_a_minute_after_a_receive_found_nothing(
    world: World, counts: ReadyCounts
) -> None:
    assert counts.report(700, MANY) == ReadyReport(512, wants=False)
    counts.want()
    asked = []
    for _ in range(2 * WANT_MS // 500):
        asked.append(counts.report(0, MANY).wants)
        world.clock.pass_ms(500)
    half = len(asked) // 2
    assert asked[:4] == [True, False, True, False]
    assert sum(asked[:half]) == half // 2
    assert not any(asked[half:])
    assert PAUSE_MS < 2 * 500


async def test_among_very_many_each_third_heartbeat_asks_and_says_another_number(
    world: World, counts: ReadyCounts
) -> None:
    found = []
    counts.want()
    for ready in (8, 0, 0, 0, 9, 9, 9):
        found.append(counts.report(ready, VERY_MANY))
        world.clock.pass_ms(SLOW_HEARTBEAT_MS)
    assert [each.count for each in found] == [8, 8, 8, 0, 0, 0, 8]
    assert [each.wants for each in found] == [True, False, False, True, False, False, True]


@pytest.mark.parametrize(("others", "said"), [(READY_MAX, [8, 0, 8, 0]), (MANY, [8, 8, 8, 0])])
async def test_among_many_it_says_another_number_with_each_second_heartbeat(
    world: World, counts: ReadyCounts, others: int, said: list[int]
) -> None:
    found = []
    for ready in (8, 0, 9, 0):
        found.append(counts.report(ready, others).count)
        world.clock.pass_ms(500)
    assert found == said


async def test_what_was_not_asked_stays_as_long_as_it_is_wanted(
    world: World, counts: ReadyCounts
) -> None:
    counts.want()
    heard = {"a": 1}
    counts.received(heard)
    counts.received(None)
    assert counts.elsewhere is heard
    counts.received({})
    assert counts.elsewhere == {}
    counts.received(heard)
    world.clock.pass_ms(WANT_MS)
    counts.received(None)
    assert counts.elsewhere == {}


async def test_notes_have_it_as_long_as_a_sidecar_of_an_older_build_lives(
    counts: ReadyCounts,
) -> None:
    new, old = [
        Member(name, 1, 0, "", (), write_note(MemberNote(peer="there", counts=known)))
        for name, known in (("new", True), ("old", False))
    ]
    assert counts.in_note(5, 1) == 0
    counts.others([new, old])
    assert counts.in_note(5, 2) == 4
    counts.others([new])
    assert counts.in_note(5, 1) == 0
