"""The live value: what operators have changed while the subscription runs, one small value in the
store.

Every heartbeat reads it, so all sidecars know it within half a second. It has a version and the
newest one wins; a sidecar that knows a newer one than the store (which was rolled back or lost its
data) writes that back. Times are the store's.
"""

from __future__ import annotations

import msgspec

from ackd.api.control import Cancel, Pause
from ackd.unreadable import UNREADABLE


class Halt(msgspec.Struct, frozen=True):
    """An operation during which no sidecar may own partitions, and since when it runs."""

    operation: str
    since_ms: int


class Live(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole value. `settings`: only the changed ones, in the form of the file."""

    version: int = 0
    settings: dict[str, object] = {}
    pause: Pause | None = None
    halt: Halt | None = None
    cancels: list[Cancel] = []


def write_live(live: Live) -> bytes:
    """Encode the value for the store."""
    return msgspec.json.encode(live)


def read_live(data: bytes) -> Live | None:
    """Decode the value; None if it can't be read (another version may write more)."""
    if not data:
        return Live()
    try:
        return msgspec.json.decode(data, type=Live)
    except UNREADABLE:
        return None
