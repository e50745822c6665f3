"""Settings that were renamed or removed: the report says what to write instead.

The old names have no effect. Only these tables know them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ackd.config.mistakes import Path

SUBSCRIPTION: Mapping[str, str] = {
    "brake_failures": "circuit_breaker_failures",
    "brake_share": "circuit_breaker_share",
    "brake_window_ms": "circuit_breaker_window_ms",
    "brake_trial_ms": "circuit_breaker_trial_ms",
    "on_growth": "on_partition_increase",
    "foreign_commit": "external_commit",
    "give_up_after_ms": "message_ttl_ms",
    "dead_topic": "dead_letter_topic",
}
"""Below `subscriptions.NAME`, and in a live change of such settings."""

OPTIONS: Mapping[str, str] = {
    "foreign_delays": "honor_client_delays",
    "foreign_delays_wait_ms": "client_delays_wait_ms",
    "hold_ms": "invisible_duration_ms",
}
"""Below `brokers.NAME.options`, where the adapter has an option of the new name."""

REMOVED: Mapping[str, str] = {
    "settings_drift": "sidecars that differ go on serving, and readiness and the metric "
    "`ackd_settings_differ` tell in which settings",
}
"""As `SUBSCRIPTION`, but there is no new name: what ackd does instead."""

REMOVED_LIVE: Mapping[str, str] = {
    "apply_to": "a change counts from the next grant or extend on; POST "
    "/v1/leases/{lease}/extend moves the deadline of an open lease",
    "force": "open leases keep their deadlines",
}
"""What stood beside the settings of a live change only."""

_TABLES: Mapping[tuple[str, int], Mapping[str, str]] = {
    ("subscriptions", 3): SUBSCRIPTION,
    ("brokers", 4): OPTIONS,
}
"""By the first part of a key path, and how many parts it has."""


def new_name(path: Path, known: Collection[str]) -> str | None:
    """The new name of the last part of a key path; None if there never was such a setting."""
    new = _TABLES.get((str(path[0]), len(path)), {}).get(str(path[-1]))
    return new if new in known else None


def problem(old: str, new: str) -> str:
    """The report's sentence about an old name."""
    return f"`{old}` is now `{new}`"


def removal(path: Path) -> str | None:
    """The report's sentence about a removed setting; None if there never was such a setting."""
    section = (str(path[0]), len(path)) == ("subscriptions", 3)
    return gone(str(path[-1])) if section else None


def gone(name: str, *, live: bool = False) -> str | None:
    """Say what to write instead of an old name of a subscription's setting; `live`: in a live
    change.
    """
    why = REMOVED.get(name) or (REMOVED_LIVE.get(name) if live else None)
    return why and f"`{name}` is gone, take it out: {why}"
