"""Settings of a subscription that an operator may change while it runs, and their validation.

The same kinds, bounds and rules hold as in the file, and every mistake is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ackd.config import renamed, rules
from ackd.config.conversion import Wrong, convert
from ackd.config.fields import specs
from ackd.config.mistakes import Mistake, MistakesError, nearest, shown
from ackd.config.reader import SettingsReader
from ackd.config.subscription import SubscriptionSettings

_SPECS = {spec.name: spec for spec in specs(SubscriptionSettings)}
LIVE = {name: spec for name, spec in _SPECS.items() if spec.live}
"""What decides nothing about which messages come, and can change between two messages."""


def overlaid(
    configured: SubscriptionSettings, changes: Mapping[str, object]
) -> SubscriptionSettings:
    """The configured settings with the changes applied; None keeps a setting as configured.

    Raises `MistakesError`, its paths starting at the section.
    """
    reader = SettingsReader({}, Path())
    values: dict[str, Any] = {}
    for name, raw in changes.items():
        spec, new = _SPECS.get(name), renamed.SUBSCRIPTION.get(name)
        if new is not None:
            reader.mistake((name,), renamed.problem(name, new))
        elif (gone := renamed.gone(name, live=True)) is not None:
            reader.mistake((name,), gone)
        elif spec is None:
            reader.mistake((name,), "unknown key", hint=nearest(name, LIVE))
        elif name not in LIVE:
            reader.mistake((name,), "can be changed in the file only", allowed=", ".join(LIVE))
        elif raw is not None:
            try:
                values[name] = convert(spec, raw)
            except Wrong as wrong:
                path = (name,) if wrong.index is None else (name, wrong.index)
                allowed = spec.allowed(item=wrong.index is not None)
                reader.mistake(path, wrong.problem, value=shown(raw), allowed=allowed)
            reader.sources[name] = "live"
    settings = replace(configured, **values)
    rules.by_itself(settings, reader, ())
    if reader.mistakes:
        raise MistakesError(reader.mistakes)
    return settings


def usable(configured: SubscriptionSettings, changes: Mapping[str, object]) -> dict[str, object]:
    """Return those of the changes that are valid here; another version or file may allow more."""
    with suppress(MistakesError):
        overlaid(configured, changes)
        return dict(changes)
    kept: dict[str, object] = {}
    for name, value in changes.items():
        try:
            overlaid(configured, {**kept, name: value})
        except MistakesError:
            continue
        kept[name] = value
    return kept


def pointer(mistake: Mistake) -> str:
    """The place in the request (a JSON Pointer): `retry_delays_ms[2]` -> `/retry_delays_ms/2`."""
    return "/" + mistake.path.replace("[", "/").replace("]", "")
