"""Which settings all sidecars of a subscription must share, and how a difference is told."""

import logging
from dataclasses import fields, replace

import pytest

from ackd.config.subscription import SubscriptionSettings
from ackd.engine.cluster.members import MemberNote, read_note, write_note
from ackd.engine.cluster.settings_drift import SHARED, SettingsDrift, settings_marks

BASE = SubscriptionSettings(topics=("a", "b"))

# Each sidecar may have its own: resources, pace, names and forms of this one.
OWN = {
    *("broker", "lease_ms", "lease_ms_max", "payload", "window_bytes_max"),
    *("buffer_max", "commit_interval_ms", "static_id", "spill_bytes_max"),
    *("push", "leave_without_store_ms", "broadcast_id"),
    # Only who holds a partition decides by these, and only who makes the topic by those.
    *("stuck_min_age_ms", "span_max", "notes_bytes_max"),
    # An application may fail beside one sidecar only.
    *(
        "circuit_breaker_failures",
        "circuit_breaker_share",
        "circuit_breaker_window_ms",
        "circuit_breaker_trial_ms",
    ),
    *("retry_topic_partitions", "retry_topic_replication", "retry_topic_retention_ms"),
}


def test_every_setting_of_a_subscription_is_on_one_side() -> None:
    """Who adds a setting decides whether all sidecars have to agree on it."""
    assert {each.name for each in fields(SubscriptionSettings)} == OWN | set(SHARED)
    assert not OWN & set(SHARED)


@pytest.mark.parametrize(
    ("other", "differ"),
    [
        (BASE, []),
        (replace(BASE, topics=("b", "a")), []),
        (replace(BASE, group="work"), []),
        (replace(BASE, lease_ms=1_000, buffer_max=5), []),
        (replace(BASE, group="other"), ["group"]),
        (replace(BASE, attempts_max=3, start="earliest"), ["attempts_max", "start"]),
        (replace(BASE, topics=("a",)), ["topics"]),
        (replace(BASE, retry_delays_ms=(1, 2)), ["retry_delays_ms"]),
    ],
)
def test_differences_are_named(other: SubscriptionSettings, differ: list[str]) -> None:
    drift = SettingsDrift("work", settings_marks("work", BASE))
    note = write_note(MemberNote(settings=settings_marks("work", other)))
    drift.look([("pod-2", read_note(note).settings)])
    assert drift.others == ({"pod-2": differ} if differ else {})
    assert all(name in drift.warning() for name in differ)


def test_sidecars_of_other_versions_are_compared_on_what_both_know() -> None:
    drift = SettingsDrift("work", settings_marks("work", BASE))
    marks = settings_marks("work", BASE)
    del marks["attempts_max"]
    drift.look([("newer", {**marks, "of-the-future": "00"}), ("unknown", {})])
    assert drift.others == {}


def test_a_difference_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    drift = SettingsDrift("work", settings_marks("work", BASE))
    other = settings_marks("work", replace(BASE, attempts_max=3))
    with caplog.at_level(logging.INFO, "ackd.engine"):
        for _ in range(3):
            drift.look([("pod-2", other)])
        for _ in range(3):
            drift.look([])
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "pod-2 in attempts_max" in caplog.messages[0]
