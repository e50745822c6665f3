"""Who lives, as heartbeats tell it: a newer process of the own name is waited for (R24)."""

from __future__ import annotations

from ackd.engine.cluster.members import HEARTBEAT_MS, RIVAL_GONE_MS, Rival
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
