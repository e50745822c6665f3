"""Settings changed at run time keep the bounds and rules of the file."""

import msgspec
import pytest

from ackd.config.live_settings import LIVE, overlaid, pointer, usable
from ackd.config.mistakes import MistakesError
from ackd.config.subscription import SubscriptionSettings
from ackd.http.handlers.control import SettingsPatch

FILE = SubscriptionSettings(topics=("t",), lease_ms=40_000, lease_ms_max=60_000)


def wrong(**changes: object) -> dict[str, str]:
    """Where the mistakes are, and what they say."""
    with pytest.raises(MistakesError) as refused:
        overlaid(FILE, changes)
    return {pointer(each): each.reason for each in refused.value.mistakes}


def test_values_are_read_as_in_the_file() -> None:
    settings = overlaid(FILE, {"lease_ms": "45s", "retry_delays_ms": ["1s", 2000]})
    assert (settings.lease_ms, settings.retry_delays_ms) == (45_000, (1000, 2000))
    assert overlaid(FILE, {"lease_ms": None}) == FILE


def test_every_wrong_key_is_named_with_what_is_allowed() -> None:
    found = wrong(lease_ms=1, retry_delays_ms=[1, "x"], attempts_maxx=3, topics=["u"], span_max="9")
    assert found.keys() == {
        "/lease_ms",
        "/retry_delays_ms/1",
        "/attempts_maxx",
        "/topics",
        "/span_max",
    }
    assert "too small; allowed: 100ms to 12h" in found["/lease_ms"]
    assert "did you mean attempts_max?" in found["/attempts_maxx"]
    assert "file only" in found["/topics"]


def test_rules_between_settings_hold_too() -> None:
    assert wrong(lease_ms=61_000).keys() == {"/lease_ms"}
    assert wrong(retry_backoff_ms="3h").keys() == {"/retry_backoff_ms"}


def test_what_is_not_right_here_is_left_out() -> None:
    """Another sidecar's file, or version, may have allowed more."""
    changes: dict[str, object] = {"lease_ms": 120_000, "attempts_max": 3, "new_setting": 1}
    assert usable(FILE, changes) == {"attempts_max": 3}


def test_the_document_names_what_can_be_changed() -> None:
    named = {each.name for each in msgspec.structs.fields(SettingsPatch)}
    assert named == set(LIVE)
