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
    """Report what the subscriptions ask for and their adapters can't do."""
    for name, each in settings.subscriptions.items():
        path: Path = ("subscriptions", name)
        broker = settings.brokers.get(each.broker)
        if broker is None or not reader.clean((*path, "broker"), ("brokers", each.broker)):
            continue
        can = declared(broker.adapter)
        if can is not None:
            _subscription(each, can, reader, path)


def declared(adapter: str) -> Capabilities | None:
    """Return the capabilities that an adapter declares for all its connections; None: it declares
    none before it runs.
    """
    try:
        can = getattr(find_adapter(adapter), "capabilities", None)
    except ConfigError:
        return None
    return can if isinstance(can, Capabilities) else None


def _subscription(
    each: SubscriptionSettings, can: Capabilities, reader: SettingsReader, path: Path
) -> None:
    if can.broker_side_acks:
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
    """Report what needs positions of a group, which this broker lacks: broadcast, a start, patterns
    of topics.
    """
    if each.mode == "broadcast" and reader.clean((*path, "mode")):
        problem = (
            f"{can.name} can't be read by everyone without being in the group; "
            "instead give each sidecar a subscription with a `group` of its own"
        )
        reader.mistake((*path, "mode"), problem, value=shown(each.mode), allowed="clustering")
    if reader.given((*path, "start")) and reader.clean((*path, "start")):
        problem = f"{can.name} decides by itself where a new group starts; leave this out"
        reader.mistake((*path, "start"), problem, value=shown(each.start))
    path_to_external = (*path, "external_commit")
    if (
        each.external_commit == "accept"
        and reader.given(path_to_external)
        and reader.clean(path_to_external)
    ):
        problem = (
            f"{can.name} gives messages again after a crash as after a reset, so readiness names "
            "what came again, and only `ackd seek` delivers it; leave this out"
        )
        reader.mistake(path_to_external, problem, value=shown("accept"), allowed="refuse")
    for index, topic in enumerate(each.topics):
        if topic.startswith("^") and reader.clean((*path, "topics")):
            problem = f"{can.name} has no patterns of topics"
            reader.mistake((*path, "topics", index), problem, value=shown(topic))
