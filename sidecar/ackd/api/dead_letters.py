"""Questions and operations about dead letters: plain values in and out, as in `ackd.api.messages`.

`DeadLetterApi` is implemented by `ackd.engine.operations.dead_letters.DeadLetters`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Protocol

from ackd.api.past_deliveries import PastDelivery
from ackd.ports import Headers, Record


class Kind(StrEnum):
    """What an operation does with dead letters."""

    REDRIVE = "redrive"
    PURGE = "purge"


class To(StrEnum):
    """Where a redrive sends dead letters: to this group only, or to their topic, for all groups
    (R29).
    """

    GROUP = "group"
    ORIGIN = "origin"


class Progress(StrEnum):
    """The state of an operation."""

    RUNNING = "running"
    CANCELLING = "cancelling"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Selects dead letters that match every given field. Times in Unix ms.

    `topic`, `key`: equal. `reason`, `error`: contained in its reason, in its last error. `after_ms`
    <= when it was dead-lettered < `before_ms`.
    """

    topic: str | None = None
    key: str | None = None
    reason: str | None = None
    error: str | None = None
    after_ms: int | None = None
    before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DeadRequest:
    """A redrive or a purge of the dead letters `ids`; without `ids`, of at most `max` that match
    the filter.

    The sidecar first removes the headers named in `remove_headers`, then sets `set_headers`; each
    replaces all headers of its name. `rate_per_s` None = as fast as possible. `confirm`: the
    subscription's name, which a purge needs, and a redrive of everything: no `ids`, no filter, and
    no more letters than `max`. `unsigned`: a redrive also takes what ackd did not sign, and what it
    put aside.
    """

    kind: Kind
    ids: tuple[str, ...] = ()
    filter: DeadFilter = DeadFilter()
    max: int | None = None
    dry_run: bool = False
    rate_per_s: int | None = None
    to: To = To.GROUP
    set_headers: tuple[tuple[str, str], ...] = ()
    remove_headers: tuple[str, ...] = ()
    confirm: str = ""
    unsigned: bool = False

    @property
    def takes_any(self) -> bool:
        """Whether nothing limits which dead letters it takes; `max` may limit how many."""
        return not self.ids and self.filter == DeadFilter()

    def plain(self) -> dict[str, object]:
        """Return the form in which the store keeps it."""
        return asdict(self)


@dataclass(slots=True)
class DeadView:
    """A dead letter. `id` is its own, `message` that of the message that it stands for.

    `state`: dead, or redriving (it is on its way, or a redrive was stopped on the way). `dead_ms`:
    when it was dead-lettered.
    """

    id: str
    message: str
    state: str
    attempts: int
    reason: str
    first_error: str
    last_error: str
    first_seen_ms: int
    published_ms: int
    dead_ms: int
    redriven_from: str | None


@dataclass(slots=True)
class DeadPage:
    """A part of the list. `cursor` None = the last part. `unreadable`: records in this part of the
    topic that are passed over, because no dead letter can be read from them.
    """

    messages: list[DeadView]
    cursor: str | None = None
    unreadable: int = 0


@dataclass(slots=True)
class DeadLetter:
    """A dead letter with its content: the message's own key, value and headers. `history`: its
    deliveries, the oldest first.
    """

    view: DeadView
    record: Record
    headers: Headers
    history: list[PastDelivery] = field(default_factory=list)


@dataclass(slots=True)
class DryRun:
    """What the operation would do. `complete` False: the time was up before the end of the topic.

    `messages`: the first matches.
    """

    matched: int
    scanned: int
    complete: bool
    messages: list[DeadView] = field(default_factory=list)


@dataclass(slots=True)
class OperationView:
    """An operation. It has read `scanned` of `total` dead letters. It redrove or purged `moved`
    of them; the broker refuses `failed` for good; `skipped` were gone or on their way already.
    """

    id: str
    subscription: str
    kind: str
    state: str
    to: str | None
    created_ms: int
    updated_ms: int
    total: int
    scanned: int
    moved: int
    failed: int
    skipped: int
    error: str | None = None


class DeadLetterApi(Protocol):
    """Dead letters: list, read, redrive, purge. Every method may raise `AckdError`."""

    async def page(self, name: str, cursor: str | None, limit: int) -> DeadPage:
        """List dead letters, partition by partition, the oldest first.

        Raises BadParameterError (cursor).
        """

    async def peek(self, name: str, dead_id: str) -> DeadLetter:
        """Read one dead letter with its content. Raises UnknownDeadLetterError."""

    async def begin(self, name: str, request: DeadRequest) -> DryRun | OperationView:
        """Start an operation, or say what it would do.

        Raises UnconfirmedError, UnknownDeadLetterError (ids), OperationRunningError.
        """

    async def operations(self, name: str | None) -> list[OperationView]:
        """List the operations of a subscription that are kept, or those of all that this sidecar
        has (None); the newest first.
        """

    async def operation(self, operation_id: str) -> OperationView:
        """Report how an operation stands. Raises UnknownOperationError."""

    async def cancel(self, operation_id: str) -> OperationView:
        """Stop an operation after its current batch. Raises UnknownOperationError."""
