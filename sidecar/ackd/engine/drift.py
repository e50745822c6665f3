"""Sidecars of one subscription that were configured differently in what all must agree on.

Each heartbeat carries a hash of every *semantic* setting, so that a difference can be named without
showing a value, and so that sidecars of different versions compare the settings that both know.
Nobody refuses to serve for it: it is told in the log, in readiness and as a metric.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from ackd.config.subscription import SubscriptionSettings

LOG = logging.getLogger("ackd.engine")

SEMANTIC = (
    "topics",
    "group",
    "ordering",
    "attempts_max",
    "retry_delays_ms",
    "retry_backoff_ms",
    "retry_backoff_factor",
    "retry_backoff_ms_max",
    "stuck_after_ms",
    "retry_topic",
    "in_flight_max",
    "rate_per_s",
    "rate_burst",
    "start",
    "start_timestamp_ms",
    "foreign_commit",
)
"""What decides which messages come, in whose name, how fast, and what becomes of what fails."""


def settings_marks(name: str, settings: SubscriptionSettings) -> dict[str, str]:
    """A short hash of each semantic setting of the subscription `name`."""
    values: dict[str, object] = {each: getattr(settings, each) for each in SEMANTIC}
    values["topics"] = sorted(settings.topics)
    values["group"] = settings.group or name
    return {
        each: blake2b(repr(value).encode(), digest_size=4).hexdigest()
        for each, value in values.items()
    }


class Drift:
    """Which living sidecars differ from this one, and in which settings."""

    def __init__(self, subscription: str, marks: Mapping[str, str]) -> None:
        self._subscription = subscription
        self._marks = marks
        self.others: dict[str, list[str]] = {}

    def look(self, members: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """(name, marks) of every other living sidecar, as of the last heartbeat. Logs a change."""
        others = {}
        for name, marks in members:
            known = self._marks.keys() & marks.keys()
            differ = sorted(each for each in known if self._marks[each] != marks[each])
            if differ:
                others[name] = differ
        if others != self.others:
            self.others = others
            if others:
                LOG.warning("%s: %s", self._subscription, self.warning())
            else:
                LOG.info("%s: all sidecars have the same settings again", self._subscription)

    def warning(self) -> str:
        """One sentence for readiness and the log; empty when all agree."""
        if not self.others:
            return ""
        told = [f"{name} in {', '.join(each)}" for name, each in sorted(self.others.items())]
        return f"warning: other sidecars have other settings: {'; '.join(told)}"
