"""The document of a seek or import: what the store keeps while a sidecar carries it out."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ackd.api.dead_letters import OperationView, Progress
from ackd.core.ids import LedgerKey
from ackd.errors import StoreDataError
from ackd.unreadable import UNREADABLE


class Stage(StrEnum):
    """How far the seek is; each stage can be begun anew after a crash.

    HALT: all sidecars stop granting and let their partitions go. COPIES: find the copies under
    lease. RESET: move the partitions. FINISH: finish the other copies of messages that come again.
    BROKER: where the broker hands messages out by itself, let it begin there, too. CHECK: make sure
    that the store still has every reset.
    """

    HALT = "halt"
    COPIES = "copies"
    RESET = "reset"
    FINISH = "finish"
    BROKER = "broker"
    CHECK = "check"


class SeekTarget(msgspec.Struct):
    """One partition and where it goes. `finished`: ranges above that stay finished.

    `held`: offsets whose copy is under lease; only that copy is delivered, not the message itself.
    `epoch`: the reset epoch before the seek, None = not read yet. `end`: of what had come before.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    finished: list[tuple[int, int]] = []
    held: list[int] = []
    epoch: int | None = None
    done: bool = False
    end: int = 0

    def key(self, cluster: str, subscription: str) -> LedgerKey:
        """Key of the partition's record."""
        return LedgerKey(cluster, subscription, bytes.fromhex(self.topic_id), self.partition)


# tidy: long-class attributes=17 -- a job's stored text: its fields, read and written
class SeekDocument(msgspec.Struct, kw_only=True):
    """The operation. `keep`: (partition, offset) of copies that stay, `copies`: how many were
    finished.

    `kind` is `seek` or `import`; `seek` tells this document from one about dead letters.
    """

    seek: bool = True
    kind: str
    id: str
    subscription: str
    to: str
    increase_only: bool
    targets: list[SeekTarget]
    created_ms: int
    updated_ms: int = 0
    state: Progress = Progress.RUNNING
    stage: Stage = Stage.HALT
    cancelled: bool = False
    keep: list[tuple[int, int]] = []
    moved: int = 0
    skipped: int = 0
    copies: int = 0
    error: str | None = None

    @property
    def topic_id(self) -> str:
        """Empty: a seek has no dead-letter topic."""
        return ""

    def view(self, *, cancelling: bool = False) -> OperationView:
        """The values that the API shows, counted in partitions."""
        state = self.state
        if cancelling and state is Progress.RUNNING:
            state = Progress.CANCELLING
        return OperationView(
            id=self.id,
            subscription=self.subscription,
            kind=self.kind,
            state=state.value,
            to=self.to,
            created_ms=self.created_ms,
            updated_ms=self.updated_ms,
            total=len(self.targets),
            scanned=sum(target.done for target in self.targets),
            moved=self.moved,
            failed=0,
            skipped=self.skipped,
            error=self.error,
        )

    def text(self) -> bytes:
        """The document as JSON, for the store."""
        return msgspec.json.encode(self)


class _SeekMark(msgspec.Struct):
    seek: bool = False


def is_seek(raw: bytes) -> bool:
    """Whether a stored document is a `SeekDocument`."""
    try:
        return msgspec.json.decode(raw, type=_SeekMark).seek
    except UNREADABLE:
        return False


def read_seek(raw: bytes) -> SeekDocument:
    """Parse a document from the store. Raises StoreDataError."""
    try:
        return msgspec.json.decode(raw, type=SeekDocument)
    except UNREADABLE as error:
        raise StoreDataError(f"an operation can't be read: {error}") from error
