"""What operators ask for while a subscription runs: pauses and cancels."""

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
