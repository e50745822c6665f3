"""What each settle verb is, said once: a row of `SETTLES`.

Everybody else who has to know the verbs takes them from these rows: the record and its Lua script,
the engine, the HTTP API and its documentation, push, metrics, spans, and the command `ackd lease`.
`tests/unit/core/test_settles.py` names them all. In which phases a verb counts, and what the store
answers then, are rows of `transitions.TABLE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from ackd.core.record.transitions import TABLE, Outcome, Phase, State, Verb


class SettleVerb(StrEnum):
    """What a settle item asks for (`do` on the wire)."""

    ACK = "ack"
    RETRY = "retry"
    EXTEND = "extend"
    DEAD = "dead"
    RELEASE = "release"


class Status(StrEnum):
    """What became of a settle item (`status` on the wire)."""

    ACKED = "acked"
    ALREADY_ACKED = "already_acked"
    RETRYING = "retrying"
    EXTENDED = "extended"
    DEAD = "dead"
    RELEASED = "released"
    LOST = "lost"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


class Due(IntEnum):
    """What a settle does to the time in the message's slot."""

    NEVER = 0
    """Nobody will be granted the message."""
    NOW = 1
    DELAY = 2
    """The settle brings a delay, or the subscription's schedule has one."""
    LEASE = 3
    """The lease goes on, with a new deadline."""


class Count(IntEnum):
    """Whether the attempt that the settle ends counts."""

    ALWAYS = 0
    ASKED = 1
    """Unless the settle says `count: false`, or the circuit breaker is open."""
    NEVER = 2


@dataclass(frozen=True, slots=True)
class SettleRule:
    """One verb. `status`: what the caller is told when it counts. `text`: what it does, for the
    API's documentation and the command line. `options`: members of the request besides the lease.
    `failure`: the circuit breaker and `ackd top` count it as one. `push`: an application that is
    called may answer with it (`Ackd-Do`). `span`: the `ackd.event` of its span, which has to be one
    of `telemetry.spans.SpanEvent`.
    """

    do: SettleVerb
    verb: Verb
    status: Status
    text: str
    span: str
    due: Due = Due.NEVER
    count: Count = Count.ALWAYS
    options: tuple[str, ...] = ()
    failure: bool = False
    push: bool = False

    @property
    def outcome(self) -> Outcome:
        """What the store answers to the holder of a live lease."""
        return TABLE[Phase.LEASED, self.verb].outcome

    @property
    def state(self) -> State:
        """The message's state after that."""
        return TABLE[Phase.LEASED, self.verb].state

    @property
    def ends(self) -> bool:
        """Whether it ends the lease."""
        return self.due is not Due.LEASE

    @property
    def reason(self) -> bool:
        """Whether the application may say why."""
        return "reason" in self.options

    @property
    def note(self) -> bool:
        """Whether the application may leave a note for the next attempt."""
        return "note" in self.options


_ROWS = (
    SettleRule(
        SettleVerb.ACK,
        Verb.ACK,
        Status.ACKED,
        "The message is done.",
        span="ack",
        push=True,
    ),
    SettleRule(
        SettleVerb.RETRY,
        Verb.RETRY,
        Status.RETRYING,
        "The message failed: deliver it again after a delay.",
        span="retry",
        due=Due.DELAY,
        count=Count.ASKED,
        options=("delay_ms", "reason", "count"),
        failure=True,
        push=True,
    ),
    SettleRule(
        SettleVerb.EXTEND,
        Verb.EXTEND,
        Status.EXTENDED,
        "Keep the lease for longer.",
        span="extend",
        due=Due.LEASE,
        options=("lease_ms", "note"),
    ),
    SettleRule(
        SettleVerb.DEAD,
        Verb.DEAD,
        Status.DEAD,
        "Give the message up: it becomes a dead letter.",
        span="dead",
        options=("reason",),
        failure=True,
        push=True,
    ),
    SettleRule(
        SettleVerb.RELEASE,
        Verb.RELEASE,
        Status.RELEASED,
        "Give the message back. The attempt does not count.",
        span="release",
        due=Due.NOW,
        count=Count.NEVER,
    ),
)

SETTLES: Mapping[SettleVerb, SettleRule] = {rule.do: rule for rule in _ROWS}
OF_VERB: Mapping[Verb, SettleRule] = {rule.verb: rule for rule in _ROWS}
OF_OUTCOME: Mapping[Outcome, SettleRule] = {rule.outcome: rule for rule in _ROWS}
"""A repeated ack has an outcome of its own, `ALREADY_ACKED`, which is not in here."""
