"""Who lives, as heartbeats tell it: a newer process of the own name is waited for (R24), and so is
a silent sidecar that may know of acks (R10).
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from ackd.engine.cluster.members import (
    HEARTBEAT_MS,
    LAIN_MS,
    RIVAL_GONE_MS,
    SHORT_NOTE,
    SILENT_MS,
    WITNESS_MS,
    MemberNote,
    ReportedReady,
    Rival,
    View,
    coarse,
    read_note,
)
from ackd.ports import Member, Members

NOW_MS = 1_700_000_000_000


def _members(now_ms: int, silent_ms: int, boot: int = 9) -> Members:
    member = Member("me", boot, silent_ms, "", (), "")
    return Members(now_ms, (Member("other", 1, 0, "", (), ""), member), superseded=True)


def test_who_beats_is_not_gone_however_long() -> None:
    """R24: no fight with a living process."""
    rival = Rival()
    for beat in range(100):
        local_ms = beat * HEARTBEAT_MS
        assert not rival.gone(_members(NOW_MS + local_ms, 40), "me", local_ms)


def test_a_late_word_of_a_dead_process_is_waited_out() -> None:
    """R24: a beat that was on its way when its sender was killed; nothing follows it."""
    rival = Rival()
    for local_ms in range(0, RIVAL_GONE_MS, HEARTBEAT_MS):
        assert not rival.gone(_members(NOW_MS + local_ms, local_ms), "me", local_ms)
    # Cut to milliseconds, so one may be missing.
    last = _members(NOW_MS + RIVAL_GONE_MS, RIVAL_GONE_MS - 1)
    assert rival.gone(last, "me", RIVAL_GONE_MS)


def test_the_stores_clock_does_not_decide() -> None:
    """Set back by an hour, it shows a beat of the future; set ahead, a long silence."""
    rival = Rival()
    hour_ms = 3_600_000
    assert not rival.gone(_members(NOW_MS - hour_ms, -hour_ms), "me", 0)
    assert not rival.gone(_members(NOW_MS + hour_ms, hour_ms), "me", 500)
    assert rival.gone(_members(NOW_MS, 0), "me", RIVAL_GONE_MS)


def test_a_newer_boot_begins_the_wait_anew() -> None:
    rival = Rival()
    assert not rival.gone(_members(NOW_MS, 0), "me", 0)
    assert not rival.gone(_members(NOW_MS, 0, boot=10), "me", RIVAL_GONE_MS - 1)
    assert not rival.gone(_members(NOW_MS, 0, boot=10), "me", RIVAL_GONE_MS)
    assert rival.gone(_members(NOW_MS, 0, boot=10), "me", 2 * RIVAL_GONE_MS)


@pytest.mark.parametrize("silent_ms", [SILENT_MS, WITNESS_MS - 1])
def test_r10_a_silent_sidecar_is_waited_for_though_all_that_it_owned_is_taken(
    silent_ms: int,
) -> None:
    """It may come back with acks that it has served, and that a failover made the store forget. Who
    removed its entry would not wait for them.
    """
    view = View("me", 9)
    note = msgspec.json.encode(MemberNote(run="run-1")).decode()
    other = Member("other", 1, silent_ms, "", ("record",), note)
    view.update(Members(NOW_MS, (other,), superseded=False))
    assert view.orphans() == ["record"]
    assert view.forgettable(["record"]) == []
    assert not view.all_replayed("run-2")
    other = replace(other, silent_ms=WITNESS_MS + 1)
    view.update(Members(NOW_MS, (other,), superseded=False))
    assert [each.name for each in view.forgettable(["record"])] == ["other"]
    assert view.all_replayed("run-2")


@pytest.mark.parametrize(("others", "changes_max"), [(10, 400), (100, 50), (300, 6), (1_000, 2)])
def test_among_many_the_number_of_ready_messages_changes_seldom(
    others: int, changes_max: int
) -> None:
    """Under load it is another one with each heartbeat, and all others read each change."""
    told = ReportedReady()
    rng = random.Random(others)
    said = [
        told.count(rng.choice((0, 3, 50, 700)), others, now_ms)
        for now_ms in range(1_000_000, 1_120_000, 300)
    ]
    changes = sum(1 for before, after in pairwise(said) if before != after)
    assert changes <= changes_max
    if others == 10:
        assert changes > 250  # as often as ever


def test_a_backlog_is_told_soon_however_many_there_are() -> None:
    told = ReportedReady()
    assert told.count(5, 1_000, 10_000) == 4
    assert told.count(0, 1_000, 520_000) == 0
    assert told.count(5, 1_000, 530_000) == 0
    assert told.count(0, 1_000, 531_000) == 0  # it was taken
    assert told.count(5, 1_000, 532_000) == 0
    assert told.count(9, 1_000, 532_000 + LAIN_MS - 1) == 0
    assert told.count(9, 1_000, 532_000 + LAIN_MS) == 8


def test_ready_messages_are_told_as_a_power_of_two() -> None:
    assert [coarse(each) for each in (0, 1, 2, 3, 4, 7, 8, 1_000)] == [0, 1, 2, 2, 4, 4, 8, 512]


def test_the_same_list_again_is_not_looked_through() -> None:
    """A quiet heartbeat must cost the same among few and many."""
    view = View("me", 9)
    members = (Member("other", 1, 0, "", ("record",), ""),)
    view.update(Members(NOW_MS, members, superseded=False))
    state, alive = view.state, view.alive
    view.update(Members(NOW_MS + 300, members, superseded=False))
    assert (view.state, view.alive, view.now_ms) == (state, alive, NOW_MS + 300)
    assert view.alive is alive
    changed = (replace(members[0], owned=("record", "new")),)
    view.update(Members(NOW_MS + 600, changed, superseded=False))
    assert view.state is not state
    assert view.taken() == {"record", "new"}


def test_r5_a_successor_is_chosen_anew_when_another_sidecar_dies() -> None:
    view = View("me", 9)
    members = [Member(f"pod-{n}", 1, 0, "", (), "") for n in range(50)]
    view.update(Members(NOW_MS, tuple(members), superseded=False))
    records = [f"record-{n}" for n in range(200)]
    first = [view.winner(text) for text in records]
    left = tuple(members[1:])
    view.update(Members(NOW_MS, left, superseded=False))
    assert members[0].name in first
    assert members[0].name not in [view.winner(text) for text in records]
    fresh = View("me", 9)
    fresh.update(Members(NOW_MS, left, superseded=False))
    assert [view.winner(text) for text in records] == [fresh.winner(text) for text in records]


def test_equal_notes_are_decoded_once() -> None:
    text = msgspec.json.encode(MemberNote(version="1")).decode()
    assert read_note(text) is read_note(f"{text}")
    long = msgspec.json.encode(MemberNote(handed=["x" * SHORT_NOTE])).decode()
    assert read_note(long) is not read_note(long)  # it may be large, and is rare


def _leaving(*handed: str) -> Member:
    note = msgspec.json.encode(MemberNote(leaving=True, handed=list(handed))).decode()
    return Member("leaving", 1, 0, "", (), note)


def test_what_a_leaving_sidecar_gives_away_is_taken_at_once_by_one_that_stays() -> None:
    """One that was only revoked waits for its group's new owner; here there may be none."""
    given = [f"record {each}" for each in range(40)]
    staying = Member("staying", 1, 0, "", (), "")
    views = {name: View(name, 1) for name in ("me", "staying")}
    for view in views.values():
        others = (_leaving(*given), Member("me", 1, 0, "", (), ""), staying)
        view.update(Members(NOW_MS, others, superseded=False))
    found = {name: set(view.orphans()) for name, view in views.items()}
    assert found["me"] | found["staying"] == set(given)
    assert found["me"]
    assert found["staying"]
    assert not found["me"] & found["staying"]


def test_one_that_leaves_is_chosen_only_if_nobody_stays() -> None:
    view = View("me", 1)
    dead = Member("dead", 1, SILENT_MS, "", ("record",), "")
    view.update(Members(NOW_MS, (dead, _leaving("given")), superseded=False))
    assert view.winner("record", leaving=True) == "me"
    view.update(Members(NOW_MS, (dead, Member("other", 1, 0, "", (), "")), superseded=False))
    assert view.winner("record", leaving=True) == "other"
