"""Settings that had another name, or that are gone: the report tells what to write instead.

The old names have no effect any more. The tables are the only place that knows them.
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

_TABLES: Mapping[tuple[str, int], Mapping[str, str]] = {
    ("subscriptions", 3): SUBSCRIPTION,
    ("brokers", 4): OPTIONS,
}
"""By the first part of a key path, and how many parts it has."""


def new_name(path: Path, known: Collection[str]) -> str | None:
    """What the last part of a key path is called now; None: it never was a setting there."""
    new = _TABLES.get((str(path[0]), len(path)), {}).get(str(path[-1]))
    return new if new in known else None


def problem(old: str, new: str) -> str:
    """What the report says of the old name."""
    return f"`{old}` is now `{new}`"


def removal(path: Path) -> str | None:
    """What the report says of a setting that is gone; None: it never was one there."""
    section = (str(path[0]), len(path)) == ("subscriptions", 3)
    return gone(str(path[-1])) if section else None


def gone(name: str) -> str | None:
    """What the report says of a subscription's setting that is gone; None: it never was one."""
    why = REMOVED.get(name)
    return why and f"`{name}` is gone, take it out: {why}"
