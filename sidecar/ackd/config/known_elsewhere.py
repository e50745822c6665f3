"""Settings that the broker's own clients have and ackd lacks: the report names ackd's way instead.

An adapter may have `known_elsewhere`, from such a setting to a sentence. A key counts alike however
its words are joined: `subscriptionType`, `subscription-type`, `subscription_type`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ackd.config.adapters import find_adapter
from ackd.config.mistakes import Path
from ackd.config.reader import SettingsReader
from ackd.config.schema import Settings
from ackd.errors import ConfigError

_DEPTH = 3
"""`subscriptions.NAME.KEY`, or `brokers.NAME.KEY` and what is below."""


def check(settings: Settings, reader: SettingsReader) -> None:
    """Explain an unknown key by what the adapter says about it, not by a similar name."""
    for path in reader.unknown:
        if len(path) < _DEPTH:
            continue
        sentence = _sentence(_adapter(settings, path), str(path[-1]))
        if sentence is not None:
            reader.explain(path, f"unknown key: {sentence}")


def joined(key: str) -> str:
    """The key without the characters that differ between languages."""
    return key.replace("_", "").replace("-", "").lower()


def _adapter(settings: Settings, path: Path) -> str:
    """The name of the adapter whose settings a key path is in; empty if it is in none."""
    section, name = path[0], str(path[1])
    if section == "subscriptions":
        name = settings.subscriptions[name].broker
    elif section != "brokers":
        return ""
    broker = settings.brokers.get(name)
    return "" if broker is None else broker.adapter


def _sentence(adapter: str, key: str) -> str | None:
    if not adapter:
        return None
    try:
        known: Mapping[str, str] = getattr(find_adapter(adapter), "known_elsewhere", {})
    except ConfigError:
        return None
    return {joined(each): text for each, text in known.items()}.get(joined(key))
