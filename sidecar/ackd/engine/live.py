"""What an operator has changed while the subscription runs: one small value in the store.

Every heartbeat brings it, so that all sidecars know it within half a second. It has a version; the
newest one wins, and a sidecar that knows a newer one than the store (which was rolled back or lost
its data) writes that back. Times are the store's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

Scope = Literal["pod", "group"]
CancelTo = Literal["dead", "ack"]


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is handed out until `until_ms` (Unix time; None = until it is resumed).

    `group`: of all sidecars of the subscription; `pod`: of this one, as long as its process lives.
    """

    scope: Scope
    reason: str
    since_ms: int
    until_ms: int | None = None


class Lengthen(msgspec.Struct, frozen=True):
    """Leases that were open at this version, at `at_ms`, got the lease time of it; `force`: longer
    ones too.
    """

    version: int
    at_ms: int
    lease_ms: int
    force: bool = False


class Halt(msgspec.Struct, frozen=True):
    """An operation that no sidecar may own partitions beside, and since when it runs."""

    operation: str
    since_ms: int


class Cancel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A wish to end one message (its public id), said at `at_ms`. `done`: what became of it, acked
    or dead; empty before that. `places`: topic id, partition and offset of it and its copies.
    """

    message: str
    then: CancelTo
    reason: str
    at_ms: int
    done: str = ""
    places: tuple[str, ...] = ()


class Live(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole value. `settings`: changed ones only, as they would stand in the file. `notes`:
    workers have left progress notes.
    """

    version: int = 0
    settings: dict[str, object] = {}
    pause: Pause | None = None
    open_leases: Lengthen | None = None
    halt: Halt | None = None
    notes: bool = False
    cancels: list[Cancel] = []


def write_live(live: Live) -> bytes:
    """As it stands in the store."""
    return msgspec.json.encode(live)


def read_live(data: bytes) -> Live | None:
    """None for what is not there, or can't be read (another version may write more)."""
    if not data:
        return Live()
    try:
        return msgspec.json.decode(data, type=Live)
    except msgspec.DecodeError:
        return None
