"""What a ledger decides and the engine does: plain values, in the order in which they were
decided.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Fetch this partition anew, from `offset` (a long finished stretch is skipped)."""

    offset: int


@dataclass(frozen=True, slots=True)
class SendDead:
    """The message was given up: store its copy in the dead-letter topic, then finish it.

    `fence` names the lease that ended so; it is the generation of the copy (rule R2).
    """

    offset: int
    fence: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SendBack:
    """The message has a home record now: store its copy in the retry topic, then finish it (R2).

    The body is there, or certainly none will come (`Entry.gone`).
    """

    offset: int
    generation: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Bury:
    """Its attempts are used up: ask the store to give it up (BURY), unless it was settled.

    `out_of_time`: however few deliveries it had, because the first one was so long ago.
    """

    offset: int
    fence: int
    out_of_time: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """A carrier whose body is there: ask its home record whether it may be delivered."""

    offset: int


@dataclass(frozen=True, slots=True)
class CloseHome:
    """A carrier that has a slot, and so was claimed: its home record may go (CLOSE)."""

    offset: int


@dataclass(frozen=True, slots=True)
class Unpark:
    """A carrier of an ordered message is finished: its home leaves the line of its key (R19).

    `home`: what came with its place. Tell it before the claims that follow.
    """

    offset: int
    home: object


@dataclass(frozen=True, slots=True)
class PutOff:
    """Write into the record that these were put off (PLACE): (offset, attempt, due time by the
    store's clock, 0 = now) of each.
    """

    messages: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """The body is needed again soon: read it back (`Ledger.restored`)."""

    offset: int


@dataclass(frozen=True, slots=True)
class FinishRange:
    """[start, end) is not in the log: write it into the record.

    `reason` (`ackd.core.record.protocol.Finish`, 0 = a plain hole) is for messages that had been
    handed out.
    """

    start: int
    end: int
    reason: int = 0


@dataclass(frozen=True, slots=True)
class Mistaken:
    """The ledger found that one of its own invariants does not hold.

    `what`: in words, for the log. `may_mend`: read the record again, the counts begin anew by that.
    """

    what: str
    may_mend: bool


Effect = (
    FetchFrom
    | SendDead
    | SendBack
    | Bury
    | Claim
    | CloseHome
    | Unpark
    | PutOff
    | Restore
    | FinishRange
    | Mistaken
)
