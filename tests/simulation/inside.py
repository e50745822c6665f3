"""Names in production code that planted mistakes change; the only place where any stands.

Whoever renames or moves one of these mends one line here. A mistake comes to this table only if no
part of the simulator (`parts`) and no row of the transition table can make it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from ackd.errors import StoreError, StoreUnknownError


class Inside(NamedTuple):
    """A public name of a module (`Class.method` too), and what becomes of that which it names."""

    module: str
    name: str
    becomes: Callable[[Any], object]

    def owner(self) -> object:
        """What the name is an attribute of. Raises ImportError, AttributeError."""
        return reduce(getattr, self.name.split(".")[:-1], import_module(self.module))

    @property
    def exists(self) -> bool:
        """Production code still has it."""
        try:
            return hasattr(self.owner(), self.name.rpartition(".")[2])
        except (ImportError, AttributeError):
            return False

    @contextmanager
    def planted(self) -> Iterator[None]:
        """It is so meanwhile."""
        owner, name = self.owner(), self.name.rpartition(".")[2]
        with patch.object(owner, name, self.becomes(getattr(owner, name))):
            yield


def _ten_seconds(_: int) -> int:
    return 10_000


def _never(_: object) -> object:
    return lambda *_: False


def _deaf_to_the_unknown(failed: Callable[..., None]) -> object:
    def deaf(self: object, call: object, error: StoreError) -> None:
        if not isinstance(error, StoreUnknownError):
            failed(self, call, error)

    return deaf


def _counts_on(_: object) -> object:
    return lambda *_: None


TABLE: Final[dict[str, Inside]] = {
    "replays are given up": Inside("ackd.engine.base.replay_log", "UNOPENED_WAIT_MS", _ten_seconds),
    "late acks overtake claims": Inside("ackd.core.record.copies", "perhaps_claimed", _never),
    "an unknown outcome is ignored": Inside(
        "ackd.engine.partition.partition", "Partition.failed", _deaf_to_the_unknown
    ),
    "a lease that ended is counted on": Inside(
        "ackd.core.ledger.entries", "Entries.uncount", _counts_on
    ),
}
"""By the name of the mistake."""
