"""What operators ask for while a subscription runs: pauses and cancels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

Scope = Literal["pod", "group"]
CancelTo = Literal["dead", "ack"]


@dataclass(frozen=True, slots=True)
class Pause:
    """No message is delivered until `until_ms` (Unix time; None = until an operator resumes).

    `group`: for all sidecars of the subscription; `pod`: for this one, while its process lives.
    """

    scope: Scope
    reason: str
    since_ms: int
    until_ms: int | None = None


class Cancel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A wish to end one message (its public id), made at `at_ms`. `done`: the outcome, acked or
    dead; empty before that. `places`: topic id, partition and offset of the message and its copies.
    """

    message: str
    then: CancelTo
    reason: str
    at_ms: int
    done: str = ""
    places: tuple[str, ...] = ()
