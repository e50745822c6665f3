"""What a ledger decides and the engine carries out: plain values, in the order of decision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Start a new fetch of this partition at `offset`, again or past a finished range."""

    offset: int


@dataclass(frozen=True, slots=True)
class SendDead:
    """Store a copy of this message in the dead-letter topic, then finish the message.

    `fence` is that of its last lease, and the generation of the copy (rule R2).
    """

    offset: int
    fence: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SendBack:
    """The message has an origin record: store its copy in the retry topic, then finish it (R2).

    It has a body, or none can come any more (`Entry.gone`).
    """

    offset: int
    generation: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Its attempts are used up: ask the store to dead-letter it (MARK_DEAD), unless it was settled.

    `out_of_time`: whatever its number of deliveries, because the first one was too long ago.
    """

    offset: int
    fence: int
    out_of_time: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """Ask the origin record of a fetched retry copy whether the copy may be delivered."""

    offset: int


@dataclass(frozen=True, slots=True)
class CloseOriginRecord:
    """Close the origin record of a retry copy (CLOSE): the copy has a slot, so it has claimed."""

    offset: int


@dataclass(frozen=True, slots=True)
class LeaveKeyQueue:
    """A retry copy of an ordered message is finished: take its origin record out of the key queue
    (R19).

    `origin_record`: `OrderPosition.origin_record` of the copy. Carry this out before the claims
    that follow.
    """

    offset: int
    origin_record: object


@dataclass(frozen=True, slots=True)
class StoreForeignDelays:
    """Write client-set delays into the record (PLACE_COPY): (offset, attempt, due time in ms on the
    store's clock, 0 = now) of each message.
    """

    messages: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """Read the body back from the local disk (`Ledger.restored`): it is needed again soon."""

    offset: int


@dataclass(frozen=True, slots=True)
class FinishRange:
    """[start, end) is not in the log: write it into the record.

    `reason` (`ackd.core.record.protocol.Finish`, 0 = a plain gap) is for messages that had been
    delivered.
    """

    start: int
    end: int
    reason: int = 0


@dataclass(frozen=True, slots=True)
class Mistaken:
    """The ledger found one of its own invariants broken.

    `what`: a text for the log. `may_mend`: read the record again, which resets the counts.
    """

    what: str
    may_mend: bool


Effect = (
    FetchFrom
    | SendDead
    | SendBack
    | Exhausted
    | Claim
    | CloseOriginRecord
    | LeaveKeyQueue
    | StoreForeignDelays
    | Restore
    | FinishRange
    | Mistaken
)
