"""Compare settings that all sidecars of a subscription should share, and tell where they differ.

Each heartbeat carries a hash of every *shared* setting, so that a difference can be named without
showing a value, and sidecars of different versions compare the settings that both know. Differences
appear in the log, in readiness and as a metric; all go on serving, as a rolling update needs it. A
live change counts as agreed, whatever the files say.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from ackd.config.fields import specs
from ackd.config.subscription import SubscriptionSettings

LOG = logging.getLogger("ackd.engine")

SHARED = tuple(spec.name for spec in specs(SubscriptionSettings) if spec.shared)
"""They decide which messages come, in which group, how fast, and where failed messages go."""


def settings_marks(name: str, settings: SubscriptionSettings) -> dict[str, str]:
    """Hash each shared setting of the subscription `name`."""
    values: dict[str, object] = {each: getattr(settings, each) for each in SHARED}
    values["topics"] = sorted(settings.topics)
    values["group"] = settings.group or name
    return {
        each: blake2b(repr(value).encode(), digest_size=4).hexdigest()
        for each, value in values.items()
    }


class SettingsDrift:
    """Which living sidecars differ from this one, and in which settings."""

    def __init__(self, subscription: str, marks: Mapping[str, str]) -> None:
        self._subscription = subscription
        self._marks = marks
        self.others: dict[str, list[str]] = {}
        self._looked: tuple[object, frozenset[str]] = None, frozenset()

    def look_if_new(
        self,
        state: object,
        members: Iterable[tuple[str, Mapping[str, str]]],
        live: frozenset[str],
    ) -> None:
        """Compare as `look` does, if `state` (of the view) or `live` is another than last time."""
        if self._looked != (state, live):
            self._looked = state, live
            self.look(members, live)

    def look(
        self, members: Iterable[tuple[str, Mapping[str, str]]], live: Collection[str] = ()
    ) -> None:
        """Compare with (name, marks) of every other living sidecar, as of the last heartbeat; log a
        change.

        `live`: settings that were changed live.
        """
        others = {}
        same: Mapping[str, str] | None = None
        for name, marks in members:
            if marks is same:  # most sidecars have one note, which is decoded once
                continue
            known = self._marks.keys() & marks.keys()
            differ = {each for each in known if self._marks[each] != marks[each]}
            if differ := differ.difference(live):
                others[name] = sorted(differ)
            else:
                same = marks
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
        differences = [f"{name} in {', '.join(each)}" for name, each in sorted(self.others.items())]
        return f"warning: other sidecars have other settings: {'; '.join(differences)}"
