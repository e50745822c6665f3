"""What can be asked about dead letters: plain values in and out, as in `ackd.api.messages`.

`DeadLetterApi` is implemented by `ackd.engine.operations.dead_letters.DeadLetters`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Protocol

from ackd.ports import Headers, Record


class Kind(StrEnum):
    """What an operation does with dead letters."""

    REDRIVE = "redrive"
    PURGE = "purge"


class To(StrEnum):
    """Where a redrive puts them: to this group only, or to their topic, for all groups (R29)."""

    GROUP = "group"
    ORIGIN = "origin"


class Progress(StrEnum):
    """How an operation stands."""

    RUNNING = "running"
    CANCELLING = "cancelling"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters are meant; all that is given must hold. Times in Unix ms.

    `topic`, `key`: equal. `reason`, `error` (the last one): contained. `after_ms` <= when it was
    given up < `before_ms`.
    """

    topic: str | None = None
    key: str | None = None
    reason: str | None = None
    error: str | None = None
    after_ms: int | None = None
    before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DeadRequest:
    """A redrive or a purge. Without `ids` all that the filter lets through, at most `max` of them.

    `remove_headers` are taken off the message first (by name), then `set_headers` are put on, each
    in place of those of its name. `rate_per_s` None = as fast as it goes. `confirm` (purge): the
    subscription's name.
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

    def plain(self) -> dict[str, object]:
        """The form in which the store keeps it."""
        return asdict(self)


@dataclass(slots=True)
class DeadView:
    """A dead letter. `id` names it, `message` is the id that its message had.

    `state`: dead, or redriving (it is on its way, or a redrive was stopped on the way). `dead_ms`:
    when it was given up.
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
    """A part of the list. `cursor` None = it ends here."""

    messages: list[DeadView]
    cursor: str | None = None


@dataclass(slots=True)
class DeadLetter:
    """A dead letter with its content: the message's own key, value and headers."""

    view: DeadView
    record: Record
    headers: Headers


@dataclass(slots=True)
class DryRun:
    """What would happen. `complete` False: the time was up before the end of the topic.

    `messages`: the first of them.
    """

    matched: int
    scanned: int
    complete: bool
    messages: list[DeadView] = field(default_factory=list)


@dataclass(slots=True)
class OperationView:
    """An operation. `scanned` of `total` dead letters were looked at; `moved` were redriven or
    purged, `failed` the broker refuses for good, `skipped` were gone meanwhile or on their way.
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
    """Everything about dead letters. Every method may raise `AckdError`."""

    async def page(self, name: str, cursor: str | None, limit: int) -> DeadPage:
        """List dead letters, partition by partition, the oldest first. Changes nothing.

        Raises BadParameterError (cursor).
        """

    async def peek(self, name: str, dead_id: str) -> DeadLetter:
        """One dead letter with its content. Raises UnknownDeadLetterError."""

    async def begin(self, name: str, request: DeadRequest) -> DryRun | OperationView:
        """Start an operation, or say what it would do.

        Raises BadParameterError (confirm), UnknownDeadLetterError (ids), OperationRunningError.
        """

    async def operation(self, operation_id: str) -> OperationView:
        """How an operation stands. Raises UnknownOperationError."""

    async def cancel(self, operation_id: str) -> OperationView:
        """Stop an operation after its current batch. Raises UnknownOperationError."""
