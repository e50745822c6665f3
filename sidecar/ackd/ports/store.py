"""Where leases, progress and the members of a subscription are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ackd.core.ids import LedgerKey
from ackd.core.rate_bucket import TokensTaken
from ackd.core.record.protocol import MessageTexts, Open, RecordCall, RecordReply, Snapshot
from ackd.ports.outbox import Outboxes, SeenKeys
from ackd.ports.own_acks import Places
from ackd.ports.trouble import Condition


@dataclass(frozen=True, slots=True)
class Member:
    """One sidecar of a subscription as the store knows it.

    `silent_ms`: time since its last heartbeat by the store's clock, below 0 when that was set back
    meanwhile. `run`: the server run on which
    it last replayed (R10). `owned`: ledger keys' texts that it owns. `note`: settings hash and
    version.
    """

    name: str
    boot: int
    silent_ms: int
    run: str
    owned: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Members:
    """The answer to a heartbeat. `superseded`: a newer boot of the same name is registered
    (R24). `live`: what `set_live` wrote last; empty without it.
    """

    now_ms: int
    members: tuple[Member, ...]
    superseded: bool
    live: bytes = b""


class Store(Protocol):
    """Where leases and progress are kept. Every method raises StoreError when nothing was decided,
    StoreUnknownError when the call may have been applied (R12), StoreDataError, StoreSetupError.
    Every success means that the configured durability was reached (R11).
    """

    @property
    def run(self) -> str:
        """Names the server run that is connected now ("" = not connected). A change is a possible
        rollback.
        """

    async def start(self) -> None:
        """Connect; check eviction policy and durability. Raises StoreError, StoreSetupError."""

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """One flush: each call is decided atomically (they are of different partitions)."""

    async def open(self, request: Open) -> Snapshot:
        """Take or re-read a partition's record."""

    async def register(self, subscription: str, name: str) -> int:
        """A new boot number for this run of the sidecar `name` (larger than all before)."""

    async def heartbeat(
        self, subscription: str, name: str, boot: int, owned: Sequence[str], note: str
    ) -> Members:
        """Say that this sidecar lives and what it owns; hear of the others. Bounded by `owned`."""

    async def forget(self, subscription: str, name: str, boot: int) -> None:
        """Remove a member (its own clean stop, or a dead one whose partitions were taken)."""

    async def set_live(self, subscription: str, expected: bytes, value: bytes) -> bytes:
        """Set what heartbeats tell all sidecars, if it still is `expected` (empty: not there);
        returns what stands there now.
        """

    async def take(
        self, subscription: str, wanted: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        """Take tokens from the subscription's bucket, at most `wanted`; see `core.bucket`."""

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        """The progress note and the failure reasons of each message, None where there are none.
        `apply` writes them. At least one offset.
        """

    async def get(self, name: str) -> bytes | None:
        """A small value by name (`name` is below the prefix)."""

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        """Set a value."""

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        """Set a value unless there is one; returns the one that was there, None if it was set."""

    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None:
        """Set a value if it still is `expected` (None: not there); returns what is there now.

        A value that has a time to live keeps it.
        """

    async def delete(self, name: str) -> None:
        """Remove a value."""

    @property
    def outboxes(self) -> Outboxes:
        """Messages that are to be published."""

    @property
    def seen_keys(self) -> SeenKeys:
        """Business keys that were acked."""

    @property
    def places(self) -> Places:
        """Under which place a message is known that its broker names in several ways."""

    def troubles(self) -> list[Condition]:
        """What an operator should know, for readiness."""

    async def close(self) -> None:
        """Disconnect (an embedded server is stopped cleanly). Never raises, bounded."""
