"""Find adapters by name in the entry-point group `ackd.adapters`, including other people's."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from ackd.errors import ConfigError
from ackd.ports import Broker

GROUP = "ackd.adapters"


@runtime_checkable
class Adapter(Protocol):
    """What an entry point gives; `options`: the dataclass of its settings (`ackd.options`).

    It may also have `capabilities`, those of all its connections, so that what they can't do is
    told before anything runs. And `check(options)`, for rules between its settings: raises
    `ConfigError`. And `known_elsewhere`: settings that users of the broker's own clients look for,
    each with a sentence that says what does it here.
    """

    options: type[Any]

    def open(self, name: str, options: Any) -> Broker:
        """Make the connection that the file calls `name`; it does nothing before `start`."""


def adapter_names() -> list[str]:
    """Names of all adapters that are installed, sorted."""
    return sorted(entry_points(group=GROUP).names)


def find_adapter(name: str) -> Adapter:
    """Load an adapter. Raises `ConfigError` when there is none or it lacks a package."""
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        message = "no adapter of this name is installed"
        raise ConfigError(message)
    try:
        adapter = found[0].load()
    except (ImportError, AttributeError) as error:
        extra = f"; try: pip install 'ackd[{name}]'" if found[0].value.startswith("ackd_") else ""
        message = f"the adapter can't be loaded ({error}){extra}"
        raise ConfigError(message) from error
    if not isinstance(adapter, Adapter):
        message = f"{found[0].value} is not an adapter: it needs `options` and `open`"
        raise ConfigError(message)
    return adapter


def check_options(adapter: Adapter, options: object) -> str | None:
    """Check the options by the adapter's own rules; the problem in words, None if there is none."""
    check = getattr(adapter, "check", None)
    if check is None:
        return None
    try:
        check(options)
    except ConfigError as error:
        return error.detail
    return None
