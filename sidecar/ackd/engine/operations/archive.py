"""The documents of operations as the store keeps them: their form, and reading and writing them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Protocol

from ackd.api.dead_letters import DeadFilter, DeadRequest, Kind, OperationView, Progress, To
from ackd.engine.operations.seek_document import SeekDocument, is_seek, read_seek
from ackd.errors import AckdError, StoreDataError, UnknownOperationError
from ackd.ports import Clock, Store

KEEP_MS = 7 * 86_400_000
"""How long after its end an operation's result can be read."""
ENDED = (Progress.DONE, Progress.CANCELLED, Progress.FAILED)


class NoRightError(AckdError):
    """Another sidecar has the right to run this operation."""


# tidy: long-class attributes=17 -- a job's stored text: its fields, read and written
@dataclass(slots=True)
class RedriveDocument:
    """A redrive or purge as the store keeps it. `ends`: the end offset of each partition when it
    began.

    Everything below (`partition`, `offset`) has been looked at. `pending`: offsets of the batch
    that is under way, `next_offset`: the offset to go on at after that batch.
    """

    id: str
    subscription: str
    request: DeadRequest
    topic_id: str
    starts: list[int]
    ends: list[int]
    created_ms: int
    updated_ms: int = 0
    state: Progress = Progress.RUNNING
    partition: int = 0
    offset: int = 0
    pending: list[int] = field(default_factory=list)
    next_offset: int = 0
    moved: int = 0
    failed: int = 0
    skipped: int = 0
    error: str | None = None

    @property
    def left(self) -> int | None:
        """How many more dead letters it may take; None = any number."""
        most = self.request.max
        return None if most is None else most - self.moved - self.failed - self.skipped

    def view(self, *, cancelling: bool = False) -> OperationView:
        """The values that the API shows."""
        request = self.request
        state = self.state
        if cancelling and state is Progress.RUNNING:
            state = Progress.CANCELLING
        sizes = [max(end - start, 0) for start, end in zip(self.starts, self.ends, strict=True)]
        here = 0
        if self.partition < len(sizes):
            here = max(self.offset - self.starts[self.partition], 0)
        total, scanned = sum(sizes), sum(sizes[: self.partition]) + here
        if request.ids:
            total, scanned = len(request.ids), self.moved + self.failed + self.skipped
        return OperationView(
            id=self.id,
            subscription=self.subscription,
            kind=request.kind.value,
            state=state.value,
            to=request.to.value if request.kind is Kind.REDRIVE else None,
            created_ms=self.created_ms,
            updated_ms=self.updated_ms,
            total=total,
            scanned=min(scanned, total),
            moved=self.moved,
            failed=self.failed,
            skipped=self.skipped,
            error=self.error,
        )

    def text(self) -> bytes:
        """The document as JSON, for the store."""
        return json.dumps(asdict(self)).encode()


AnyDocument = RedriveDocument | SeekDocument


def read_document(raw: bytes) -> AnyDocument:
    """Parse a document from the store. Raises StoreDataError."""
    if is_seek(raw):
        return read_seek(raw)
    try:
        values = json.loads(raw)
        request = values.pop("request")
        request |= {
            "kind": Kind(request["kind"]),
            "to": To(request["to"]),
            "filter": DeadFilter(**request["filter"]),
            "ids": tuple(request["ids"]),
            "set_headers": tuple((name, value) for name, value in request["set_headers"]),
            "remove_headers": tuple(request["remove_headers"]),
        }
        values["request"] = DeadRequest(**request)
        values["state"] = Progress(values["state"])
        return RedriveDocument(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDataError(f"an operation can't be read: {error}") from error


class Archive:
    """Reads and writes the documents by id, on any sidecar."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def read(self, operation_id: str) -> AnyDocument:
        """Read an operation's document. Raises UnknownOperationError, StoreError."""
        raw = await self._store.get(_name(operation_id))
        if raw is None:
            raise UnknownOperationError(f"there is no operation {operation_id[:100]!r} (any more)")
        return read_document(raw)

    async def write(self, document: AnyDocument) -> None:
        """Store an operation's document in place of an older one. Raises StoreError."""
        document.updated_ms = self._clock.wall_ms()
        keep_ms = KEEP_MS if document.state in ENDED else None
        await self._store.put(_name(document.id), document.text(), keep_ms)

    async def remove(self, operation_id: str) -> None:
        """Delete an operation's document. Raises StoreError."""
        await self._store.delete(_name(operation_id))

    async def cancelled(self, operation_id: str) -> bool:
        """Whether an operator wants it to stop. Raises StoreError."""
        return await self._store.get(f"{_name(operation_id)}:cancel") is not None

    async def cancel(self, operation_id: str) -> None:
        """Ask the sidecar that runs this operation to stop it. Raises StoreError."""
        await self._store.put(f"{_name(operation_id)}:cancel", b"1", KEEP_MS)

    async def view(self, operation_id: str) -> OperationView:
        """Read an operation as the API shows it. Raises UnknownOperationError, StoreError."""
        document = await self.read(operation_id)
        return document.view(cancelling=await self.cancelled(operation_id))


class OperationJob(Protocol):
    """One attempt to finish an operation."""

    async def run(self) -> None: ...


KeepRight = Callable[[], Awaitable[None]]
"""Renews the right to carry out operations. Raises NoRightError when another sidecar has it."""
Work = Callable[[AnyDocument, KeepRight], OperationJob]
"""Makes the job for one attempt at a document."""


def _name(operation_id: str) -> str:
    return f"operation:{operation_id}"
