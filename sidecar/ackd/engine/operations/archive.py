"""The documents of operations, as the store keeps them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Protocol

from ackd.api.dead_letters import DeadFilter, DeadRequest, Kind, OperationView, Progress, To
from ackd.engine.operations.seek_document import SeekDocument, is_seek, read_seek
from ackd.errors import AckdError, StoreDataError, UnknownOperationError
from ackd.ports import Clock, Store

KEEP_MS = 7 * 86_400_000
"""How long the result of an operation can be asked for."""
ENDED = (Progress.DONE, Progress.CANCELLED, Progress.FAILED)


class NoRightError(AckdError):
    """Another sidecar carries out this operation."""


@dataclass(slots=True)
class RedriveDocument:
    """An operation as it is kept. `ends`: the end of each partition when it began.

    (`partition`, `offset`): what is below was looked at. `pending`: offsets of the batch that is
    under way, `behind`: where it goes on after that.
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
    behind: int = 0
    moved: int = 0
    failed: int = 0
    skipped: int = 0
    error: str | None = None

    @property
    def left(self) -> int | None:
        """How many more may be taken; None = any number."""
        most = self.request.max
        return None if most is None else most - self.moved - self.failed - self.skipped

    def view(self, *, cancelling: bool = False) -> OperationView:
        """As it is told."""
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
        """For the store."""
        return json.dumps(asdict(self)).encode()


AnyDocument = RedriveDocument | SeekDocument


def read_document(raw: bytes) -> AnyDocument:
    """Back from the store. Raises StoreDataError."""
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
    """The documents, by id; any sidecar may ask."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def read(self, operation_id: str) -> AnyDocument:
        """Raises UnknownOperationError, StoreError."""
        raw = await self._store.get(_name(operation_id))
        if raw is None:
            raise UnknownOperationError(f"there is no operation {operation_id[:100]!r} (any more)")
        return read_document(raw)

    async def write(self, document: AnyDocument) -> None:
        """Raises StoreError."""
        document.updated_ms = self._clock.wall_ms()
        keep_ms = KEEP_MS if document.state in ENDED else None
        await self._store.put(_name(document.id), document.text(), keep_ms)

    async def remove(self, operation_id: str) -> None:
        """Raises StoreError."""
        await self._store.delete(_name(operation_id))

    async def cancelled(self, operation_id: str) -> bool:
        """Whether somebody wants it to stop. Raises StoreError."""
        return await self._store.get(f"{_name(operation_id)}:cancel") is not None

    async def cancel(self, operation_id: str) -> None:
        """Ask for it to stop. Raises StoreError."""
        await self._store.put(f"{_name(operation_id)}:cancel", b"1", KEEP_MS)

    async def view(self, operation_id: str) -> OperationView:
        """Raises UnknownOperationError, StoreError."""
        document = await self.read(operation_id)
        return document.view(cancelling=await self.cancelled(operation_id))


class Runner(Protocol):
    """Whoever carries out an operation: it has the right to run it for as long as it renews it."""

    @property
    def archive(self) -> Archive: ...
    async def keep_right(self) -> None: ...


def _name(operation_id: str) -> str:
    return f"operation:{operation_id}"
