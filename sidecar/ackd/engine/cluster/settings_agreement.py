"""Compare settings that all sidecars of a subscription must share, and refuse to serve with others.

Each heartbeat carries a hash of every *semantic* setting, so that a difference can be named without
showing a value, and sidecars of different versions compare the settings that both know. The store
has a record of the subscription with the values of the `BINDING` ones: a sidecar that differs from
living sidecars in those does not serve. Other differences appear in the log, in readiness and as a
metric. A live change counts as agreed, whatever the files say.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

import msgspec

from ackd.config.subscription import SubscriptionSettings
from ackd.errors import SettingsDifferError
from ackd.ports import Store

LOG = logging.getLogger("ackd.engine")

BINDING = (
    "topics",
    "group",
    "ordering",
    "filter",
    "mode",
    "attempts_max",
    "rate_per_s",
    "rate_burst",
    "external_commit",
    "dedup",
)
"""With two values of one of these, two sidecars would do different things to the same message."""

TOLD = (
    "retry_delays_ms",
    "retry_backoff_ms",
    "retry_backoff_factor",
    "retry_backoff_ms_max",
    "message_ttl_ms",
    "stuck_after_ms",
    "retry_topic",
    "dead_letter_topic",
    "on_partition_increase",
    "in_flight_max",
    "start",
    "start_timestamp_ms",
)
SEMANTIC = (*BINDING, *TOLD)
"""They decide which messages come, in which group, how fast, and where failed messages go."""

SHOWN_MAX = 100
Values = dict[str, object]


class Agreed(msgspec.Struct):
    """The subscription's record in the store: binding settings, and which sidecar wrote them."""

    by: str
    values: Values


def semantic_values(name: str, settings: SubscriptionSettings) -> Values:
    """Return each semantic setting of the subscription `name`, in the form that is compared."""
    values: Values = {each: getattr(settings, each) for each in SEMANTIC}
    values["topics"] = sorted(settings.topics)
    values["group"] = settings.group or name
    return values


def settings_marks(name: str, settings: SubscriptionSettings) -> dict[str, str]:
    """Hash each semantic setting of the subscription `name`."""
    return {
        each: blake2b(repr(value).encode(), digest_size=4).hexdigest()
        for each, value in semantic_values(name, settings).items()
    }


class SettingsDrift:
    """Which living sidecars differ from this one, and in which settings."""

    def __init__(self, subscription: str, marks: Mapping[str, str]) -> None:
        self._subscription = subscription
        self._marks = marks
        self.others: dict[str, list[str]] = {}
        self.contested = False

    def look(
        self, members: Iterable[tuple[str, Mapping[str, str]]], live: Collection[str] = ()
    ) -> None:
        """Compare with (name, marks) of every other living sidecar, as of the last heartbeat; log a
        change.

        `live`: settings that were changed live. `contested`: a living sidecar has another binding
        setting, maybe one that was changed live.
        """
        others = {}
        self.contested = False
        for name, marks in members:
            known = self._marks.keys() & marks.keys()
            differ = sorted(each for each in known if self._marks[each] != marks[each])
            self.contested |= any(each in BINDING for each in differ)
            if differ := [each for each in differ if each not in live]:
                others[name] = differ
        if others != self.others:
            self.others = others
            if others:
                LOG.warning("%s: %s", self._subscription, self.warning())
            else:
                LOG.info("%s: all sidecars have the same settings again", self._subscription)

    @property
    def binding(self) -> dict[str, list[str]]:
        """The sidecars that differ in binding settings, and in which."""
        found = {
            name: [each for each in differ if each in BINDING]
            for name, differ in self.others.items()
        }
        return {name: differ for name, differ in found.items() if differ}

    def warning(self) -> str:
        """One sentence for readiness and the log; empty when all agree."""
        if not self.others:
            return ""
        told = [f"{name} in {', '.join(each)}" for name, each in sorted(self.others.items())]
        return f"warning: other sidecars have other settings: {'; '.join(told)}"


class SettingsAgreement:
    """One sidecar's access to the subscription's record of binding settings."""

    def __init__(
        self, store: Store, identity: str, name: str, settings: SubscriptionSettings
    ) -> None:
        self._store = store
        self._identity = identity
        self._key = f"settings:{name}"
        self._strict = settings.settings_drift == "refuse"
        values = semantic_values(name, settings)
        # Encoded and decoded, so that they compare equal to values from the store.
        raw = msgspec.json.encode({each: values[each] for each in BINDING})
        self._mine: Values = msgspec.json.decode(raw)

    async def enter(self, drift: SettingsDrift) -> None:
        """Check before this sidecar serves; if no living sidecar differs, write its settings as
        agreed.

        Raises SettingsDifferError, StoreError.
        """
        there = await self._store.get(self._key)
        if drift.binding:
            if self._strict:
                raise SettingsDifferError(self._differing(drift.binding, read_agreed(there)))
            return
        if there is None or not drift.contested:
            await self._write(there)

    async def stay(self, drift: SettingsDrift, live: Collection[str]) -> None:
        """Check while another sidecar with other settings serves: only one that agrees with the
        record goes on.

        Raises SettingsDifferError, StoreError.
        """
        if not (drift.binding and self._strict):
            return
        there = await self._store.get(self._key)
        agreed = read_agreed(there)
        if agreed is None:
            await self._write(there)
        elif any(
            agreed.values.get(each, value) != value
            for each, value in self._mine.items()
            if each not in live
        ):
            raise SettingsDifferError(self._differing(drift.binding, agreed))

    async def _write(self, there: bytes | None) -> None:
        agreed = read_agreed(there)
        if agreed is None or agreed.values != self._mine:
            data = msgspec.json.encode(Agreed(self._identity, self._mine))
            if await self._store.swap(self._key, there, data) != data:
                raise SettingsDifferError("another sidecar writes the settings at this moment")

    def _differing(self, others: Mapping[str, list[str]], agreed: Agreed | None) -> str:
        """Name each setting, both values, and the sidecars with the other one."""
        by_setting: dict[str, list[str]] = {}
        for name, differ in sorted(others.items()):
            for each in differ:
                by_setting.setdefault(each, []).append(name)
        told = []
        for each, names in sorted(by_setting.items()):
            theirs = "another value"
            if agreed is not None and each in agreed.values:
                value = agreed.values[each]
                theirs = "another value" if value == self._mine[each] else _shown(value)
            told.append(
                f"{each} is {_shown(self._mine[each])} here and {theirs} at {', '.join(names)}"
            )
        return "; ".join(told)


def read_agreed(data: bytes | None) -> Agreed | None:
    """Decode the record; None if it is absent or unreadable."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Agreed)
    except msgspec.DecodeError:
        return None


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
