"""Where leases, progress and the members of a subscription are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ackd.core.ids import LedgerKey
from ackd.core.rate_bucket import TokensTaken
from ackd.core.record.protocol import MessageTexts, Open, RecordCall, RecordReply, Snapshot
from ackd.ports.broker_side_acks import Places
from ackd.ports.condition import Condition
from ackd.ports.outbox import DedupKeys, Outboxes


@dataclass(frozen=True, slots=True)
class Member:
    """A sidecar of a subscription, as the store knows it.

    `silent_ms`: time since its last heartbeat by the store's clock, below 0 if that clock went
    back; less than a second may be told as 0. `run`: the server run on which it last replayed
    (R10). `owned`: names of the records that it owns. `note`: settings hash and version.
    """

    name: str
    boot: int
    silent_ms: int
    run: str
    owned: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class ReadyReport:
    """What a heartbeat says of messages that lie ready, beside the member's entry. `count`: those
    of this sidecar. `wants`: its answer shall say where messages lie ready.
    """

    count: int = 0
    wants: bool = False


NOTHING_READY = ReadyReport()


@dataclass(frozen=True, slots=True)
class Members:
    """The answer to a heartbeat. `superseded`: a newer process of the same name has registered
    (R24). `live`: what `set_live` wrote last, or empty. `ready`: how many messages lie ready at
    whom, at more than `READY_MAX` sidecars any so many of them. None: it was not asked.
    """

    now_ms: int
    members: tuple[Member, ...]
    superseded: bool
    live: bytes = b""
    ready: Mapping[str, int] | None = None


READY_MAX = 16
"""A heartbeat tells of ready messages at so many sidecars at most."""


class Store(Protocol):
    """The server that keeps leases and progress. Every method raises StoreError if the store
    decided nothing, StoreUnknownError if it may have applied the call (R12), StoreDataError,
    StoreSetupError. A method that returns has reached the configured durability (R11).
    """

    @property
    def run(self) -> str:
        """The server run that is connected now ("" = none). A change means a possible rollback."""

    async def start(self) -> None:
        """Connect, and check eviction policy and durability. Raises StoreError, StoreSetupError."""

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Send one flush. The store decides each call atomically; all are of different
        partitions.
        """

    async def open(self, request: Open) -> Snapshot:
        """Take a partition's record, or read it again."""

    async def register(self, subscription: str, name: str) -> int:
        """Give this process of the sidecar `name` a boot number, larger than all before."""

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        """Report that this sidecar lives and which records it owns; return the members as they
        were before, in the order of their names. If nothing of them has changed since this sidecar
        asked last, a store may give the same tuple again.
        """

    async def forget(self, subscription: str, name: str, boot: int) -> None:
        """Remove a member: this sidecar at a clean stop, or a dead one whose partitions were
        taken over.
        """

    async def set_live(self, subscription: str, expected: bytes, value: bytes) -> bytes:
        """Set the value that heartbeats return to all sidecars, if it still is `expected` (empty:
        none). Returns the value that is there now.
        """

    async def take(
        self, subscription: str, wanted: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        """Take at most `wanted` tokens from the subscription's bucket (`core.rate_bucket`)."""

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        """The progress note and the failure reasons of each message, None where there are none.
        `apply` writes them. At least one offset.
        """

    async def get(self, name: str) -> bytes | None:
        """Read a small value. `name` is relative to the prefix."""

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None: ...

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        """Set a value unless there is one. Returns the existing one, None if it was set."""

    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None:
        """Set a value if it still is `expected` (None: none). Returns the value that is there now.

        The value keeps its time to live.
        """

    async def delete(self, name: str) -> None: ...

    @property
    def outboxes(self) -> Outboxes:
        """The outboxes of all brokers."""

    @property
    def dedup_keys(self) -> DedupKeys:
        """The deduplication keys of acked messages."""

    @property
    def places(self) -> Places:
        """The places of messages whose broker names them in several ways."""

    def conditions(self) -> list[Condition]:
        """Report what an operator should know, for readiness."""

    async def close(self) -> None:
        """Disconnect; stop an embedded server cleanly. Bounded in time, never raises."""
