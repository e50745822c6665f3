"""Settings changed at run time keep the bounds and rules of the file."""

import msgspec
import pytest

from ackd.config.fields import FieldKind, Spec, Unit, specs
from ackd.config.live_settings import LIVE, overlaid, pointer, usable
from ackd.config.mistakes import MistakesError
from ackd.config.subscription import SubscriptionSettings
from ackd.http.handlers.control import SettingsPatch, changed

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


def test_the_document_takes_what_the_file_takes() -> None:
    """Each live setting's default, bare and with its unit; null; and no other name."""
    assert {each.name for each in msgspec.structs.fields(SettingsPatch)} == set(LIVE)
    kept = {name: spec.default() for name, spec in LIVE.items()}
    plain = msgspec.json.decode(msgspec.json.encode(kept))
    shown = {name: _shown(spec) for name, spec in LIVE.items()}
    for body in (plain, shown, dict.fromkeys(LIVE)):
        msgspec.convert(body, SettingsPatch)
        overlaid(FILE, body)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"topics": ["u"]}, SettingsPatch)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"attempts_max": "3"}, SettingsPatch)


def _shown(spec: Spec) -> object:
    """The default with its unit; what has none as it is."""
    value = spec.default()
    if spec.unit is Unit.NONE:
        return value
    return [spec.text(each) for each in value] if spec.item else spec.text(value)


def test_a_setting_of_any_plain_kind_may_be_made_live() -> None:
    """A new formula has a setting of a kind, perhaps, that no live one has today."""
    plain = {FieldKind.INT, FieldKind.FLOAT, FieldKind.BOOL, FieldKind.TEXT, FieldKind.LIST}
    settings = [spec for spec in specs(SubscriptionSettings) if spec.kind in plain]
    assert {spec.kind for spec in settings} == plain
    patch = msgspec.defstruct("Patch", [changed(spec) for spec in settings])
    values = {spec.name: FILE.topics if spec.required else spec.default() for spec in settings}
    msgspec.convert(values, patch)
