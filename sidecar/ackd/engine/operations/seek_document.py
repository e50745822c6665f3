"""A move of a group as it is kept in the store while it is carried out."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ackd.api.dead_letters import OperationView, Progress
from ackd.core.ids import LedgerKey
from ackd.errors import StoreDataError


class Stage(StrEnum):
    """How far it is; each one can be begun anew after a crash.

    HALT: all sidecars stop granting and let go. COPIES: which copies are under lease. RESET: the
    partitions are moved. FINISH: other copies of what comes again are finished. CHECK: the store
    still has it all.
    """

    HALT = "halt"
    COPIES = "copies"
    RESET = "reset"
    FINISH = "finish"
    CHECK = "check"


class SeekTarget(msgspec.Struct):
    """One partition and where it goes. `finished`: ranges above that stay finished.

    `held`: offsets whose copy is under lease; that copy is all that comes of them. `epoch`: the
    reset epoch before, None = not looked at yet.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    finished: list[tuple[int, int]] = []
    held: list[int] = []
    epoch: int | None = None
    done: bool = False

    def key(self, cluster: str, subscription: str) -> LedgerKey:
        """Of its record."""
        return LedgerKey(cluster, subscription, bytes.fromhex(self.topic_id), self.partition)


class SeekDocument(msgspec.Struct, kw_only=True):
    """The operation. `keep`: (partition, offset) of copies that stay, `copies`: finished ones.

    `kind` is `seek` or `import`; it tells this document from one about dead letters.
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
        """Of dead letters: it has none."""
        return ""

    def view(self, *, cancelling: bool = False) -> OperationView:
        """As it is told: in partitions."""
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
        """For the store."""
        return msgspec.json.encode(self)


class _Kind(msgspec.Struct):
    seek: bool = False


def is_seek(raw: bytes) -> bool:
    """Whether a document of the store is one of these."""
    try:
        return msgspec.json.decode(raw, type=_Kind).seek
    except msgspec.DecodeError:
        return False


def read_seek(raw: bytes) -> SeekDocument:
    """Back from the store. Raises StoreDataError."""
    try:
        return msgspec.json.decode(raw, type=SeekDocument)
    except msgspec.DecodeError as error:
        raise StoreDataError(f"an operation can't be read: {error}") from error
