"""Report what a subscription asks for and its broker's adapter declares that it can't do.

An adapter may have `capabilities`, the same that its connections have; one that has not is asked
when it runs.
"""

from __future__ import annotations

from ackd.config.adapters import find_adapter
from ackd.config.mistakes import Path, shown
from ackd.config.reader import SettingsReader
from ackd.config.schema import Settings
from ackd.config.subscription import SubscriptionSettings
from ackd.errors import ConfigError
from ackd.ports import Capabilities

SQL92 = "sql92:"


def check(settings: Settings, reader: SettingsReader) -> None:
    """Note what can't be with the reader."""
    for name, each in settings.subscriptions.items():
        path: Path = ("subscriptions", name)
        broker = settings.brokers.get(each.broker)
        if broker is None or not reader.clean((*path, "broker"), ("brokers", each.broker)):
            continue
        can = declared(broker.adapter)
        if can is not None:
            _subscription(each, can, reader, path)


def declared(adapter: str) -> Capabilities | None:
    """What the adapter of this name says of all its connections; None = nothing before it runs."""
    try:
        can = getattr(find_adapter(adapter), "capabilities", None)
    except ConfigError:
        return None
    return can if isinstance(can, Capabilities) else None


def _subscription(
    each: SubscriptionSettings, can: Capabilities, reader: SettingsReader, path: Path
) -> None:
    if can.own_acks:
        _no_positions(each, can, reader, path)
    if each.filter and reader.clean((*path, "filter")):
        kind = SQL92[:-1] if each.filter.startswith(SQL92) else "tag"
        if kind not in can.filters:
            allowed = ", ".join(sorted(can.filters)) or "no filter"
            problem = f"{can.name} can't choose messages by this"
            reader.mistake((*path, "filter"), problem, value=shown(each.filter), allowed=allowed)


def _no_positions(
    each: SubscriptionSettings, can: Capabilities, reader: SettingsReader, path: Path
) -> None:
    """The broker alone decides where a group starts, and who is in it gets what there is."""
    if each.mode == "broadcast" and reader.clean((*path, "mode")):
        problem = f"{can.name} can't be read by everyone without being in the group"
        reader.mistake((*path, "mode"), problem, value=shown(each.mode), allowed="clustering")
    if reader.given((*path, "start")) and reader.clean((*path, "start")):
        problem = f"{can.name} decides by itself where a new group starts; leave this out"
        reader.mistake((*path, "start"), problem, value=shown(each.start))
    for index, topic in enumerate(each.topics):
        if topic.startswith("^") and reader.clean((*path, "topics")):
            problem = f"{can.name} has no patterns of topics"
            reader.mistake((*path, "topics", index), problem, value=shown(topic))
