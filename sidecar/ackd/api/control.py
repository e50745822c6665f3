"""Pauses and cancels, which operators ask for while a subscription runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

Scope = Literal["pod", "group"]
CancelTo = Literal["dead", "ack"]


@dataclass(frozen=True, slots=True)
class Pause:
    """ackd delivers no message until `until_ms` (Unix time; None = until an operator resumes).

    `group`: all sidecars of the subscription; `pod`: this one, while its process lives.
    """

    scope: Scope
    reason: str
    since_ms: int
    until_ms: int | None = None

    def brief(self) -> dict[str, object]:
        """What an empty answer says of it."""
        return {"scope": self.scope, "reason": self.reason, "until_ms": self.until_ms}


class Cancel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A wish to end one message, by its public id, made at `at_ms`. `done`: the outcome, acked
    or dead; empty until there is one. `places`: topic id, partition and offset of the message
    and its copies. `topic_id`: that of the message's topic when it was made, in hex; empty if the
    sidecar that was asked did not know it.
    """

    message: str
    then: CancelTo
    reason: str
    at_ms: int
    done: str = ""
    places: tuple[str, ...] = ()
    topic_id: str = ""
