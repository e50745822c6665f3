"""The store in memory: the reference record of `ackd.core` behind the store's ports.

For tests, the simulator and trying things out. Nothing survives the process, and readiness says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from time import time_ns

from ackd.core.dedup_window import DedupWindow
from ackd.core.ids import LedgerKey
from ackd.core.outbox import Outbox
from ackd.core.rate_bucket import Bucket, TokensTaken
from ackd.core.record import decide
from ackd.core.record.protocol import (
    CallStatus,
    MessageTexts,
    Open,
    RecordCall,
    RecordReply,
    Snapshot,
)
from ackd.core.record.state import LAYOUT, PartitionRecord
from ackd.ports import NOTHING_READY, READY_MAX, Condition, Member, Members, ReadyReport
from ackd.store.memory_outbox import MemoryDedupKeys, MemoryOutboxes
from ackd.store.places import KnownPlaces, MemoryPlaces
from ackd.store.roster import SILENT_US

FORGET_MS = 3_600_000


def wall_us() -> int:
    """Unix time in microseconds, by this machine's clock."""
    return time_ns() // 1000


@dataclass(slots=True)
class MemoryEntry:
    """A registered sidecar. `seen_us` 0 = registered, no heartbeat yet."""

    boot: int
    seen_us: int = 0
    run: str = ""
    owned: tuple[str, ...] = ()
    note: str = ""
    ready: int = 0


def _ready(members: Mapping[str, MemoryEntry], now_us: int) -> dict[str, int]:
    """Where messages lie ready: any few, so that not all who want some go to the same sidecar."""
    found = [(n, e.ready) for n, e in members.items() if e.ready and now_us - e.seen_us < SILENT_US]
    first = now_us % len(found) if len(found) > READY_MAX else 0
    return dict([*found[first:], *found[:first]][:READY_MAX])


@dataclass(slots=True)
class Data:
    """All that the store keeps; the simulator copies it to model replicas and rollbacks."""

    records: dict[LedgerKey, PartitionRecord] = field(default_factory=dict)
    values: dict[str, tuple[bytes, int | None]] = field(default_factory=dict)
    boots: dict[tuple[str, str], int] = field(default_factory=dict)
    members: dict[str, dict[str, MemoryEntry]] = field(default_factory=dict)
    live: dict[str, bytes] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    outboxes: dict[str, Outbox] = field(default_factory=dict)
    seen: dict[str, DedupWindow] = field(default_factory=dict)
    places: dict[tuple[str, bytes], KnownPlaces] = field(default_factory=dict)


class MemoryStore:
    """`ackd.ports.Store` on a `Data`, which several sidecars of one process may share."""

    def __init__(
        self,
        data: Data | None = None,
        run: str = "memory",
        now_us: Callable[[], int] = wall_us,
    ) -> None:
        self.data = data if data is not None else Data()
        self._run = run
        self._now_us = now_us

    @property
    def outboxes(self) -> MemoryOutboxes:
        return MemoryOutboxes(self.data.outboxes, self._now_us, self._run)

    @property
    def dedup_keys(self) -> MemoryDedupKeys:
        return MemoryDedupKeys(self.data.seen, self._now_us)

    @property
    def places(self) -> MemoryPlaces:
        return MemoryPlaces(self.data.places, self._now_us)

    @property
    def run(self) -> str:
        """The server run: the name given at construction, as memory has one run only."""
        return self._run

    async def start(self) -> None:
        """Do nothing: there is no server to connect to."""

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Decide each call on its record."""
        return [self._apply(call) for call in calls]

    def _apply(self, call: RecordCall) -> RecordReply:
        record = self.data.records.get(call.key)
        if record is None:
            return RecordReply(CallStatus.ABSENT)
        if record.layout != LAYOUT:
            return RecordReply(CallStatus.LAYOUT)
        return decide.apply(record, call, self._now_us(), self._run)

    async def open(self, request: Open) -> Snapshot:
        """Take or re-read a record; make it if it is absent and `create_at` is given."""
        record = self.data.records.get(request.key)
        created = record is None
        if record is None:
            if request.create_at is None or request.peek:
                return Snapshot(CallStatus.ABSENT)
            record = decide.create(request, request.create_at, self._run)
        if record.layout != LAYOUT:
            return Snapshot(CallStatus.LAYOUT)
        if request.peek:
            record, request = deepcopy(record), replace(request, term=record.term)
        snapshot = decide.open_record(record, request, self._now_us(), self._run, created=created)
        if snapshot.verdict is CallStatus.OK and not request.peek:
            self.data.records[request.key] = record
        return snapshot

    async def register(self, subscription: str, name: str) -> int:
        """Give a boot number: larger than those of the name's counter and newest heartbeat, and at
        least the time in ms, so that a rollback or a loss of the counter gives no number twice.
        """
        key = (subscription, name)
        entry = self.data.members.get(subscription, {}).get(name)
        last = max(self.data.boots.get(key, 0), 0 if entry is None else entry.boot)
        boot = self.data.boots[key] = max(last + 1, self._now_us() // 1000)
        return boot

    async def heartbeat(
        self,
        subscription: str,
        name: str,
        boot: int,
        owned: Sequence[str],
        note: str,
        ready: ReadyReport = NOTHING_READY,
    ) -> Members:
        """Write this sidecar's entry unless a newer boot has; return all entries as they were
        before.
        """
        now_us = self._now_us()
        members = self.data.members.setdefault(subscription, {})
        seen = tuple(
            Member(n, e.boot, (now_us - e.seen_us) // 1000, e.run, e.owned, e.note)
            for n, e in sorted(members.items())
        )
        reported = _ready(members, now_us) if ready.wants else None
        # The entry tells who is newest, not the counter: a registration may be asked for twice.
        entry = members.get(name)
        superseded = entry is not None and entry.boot > boot
        if not superseded:
            members[name] = MemoryEntry(boot, now_us, self._run, tuple(owned), note, ready.count)
        live = self.data.live.get(subscription, b"")
        return Members(now_us // 1000, seen, superseded, live, reported)

    async def forget(self, subscription: str, name: str, boot: int) -> None:
        """Remove a member's entry unless a newer boot has written it."""
        members = self.data.members.get(subscription, {})
        entry = members.get(name)
        if entry is not None and entry.boot == boot:
            del members[name]

    async def set_live(self, subscription: str, expected: bytes, value: bytes) -> bytes:
        if self.data.live.get(subscription, b"") == expected:
            self.data.live[subscription] = value
        return self.data.live.get(subscription, b"")

    async def take(
        self, subscription: str, wanted: int, rate_per_s: float, burst: int
    ) -> TokensTaken:
        """Take tokens by this process's clock."""
        now_us = self._now_us()
        bucket = self.data.buckets.get(subscription) or Bucket(burst, now_us)
        self.data.buckets[subscription], taken = bucket.take(wanted, rate_per_s, burst, now_us)
        return taken

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        record = self.data.records.get(key)
        return [None] * len(offsets) if record is None else record.texts.get(offsets)

    async def get(self, name: str) -> bytes | None:
        """Return a value; None if there is none or its time has run out."""
        value, until_ms = self.data.values.get(name, (None, None))
        if until_ms is not None and until_ms <= self._now_us() // 1000:
            del self.data.values[name]
            return None
        return value

    async def put(self, name: str, value: bytes, ttl_ms: int | None = None) -> None:
        until_ms = None if ttl_ms is None else self._now_us() // 1000 + ttl_ms
        self.data.values[name] = (value, until_ms)

    async def put_new(self, name: str, value: bytes, ttl_ms: int | None = None) -> bytes | None:
        there = await self.get(name)
        if there is None:
            await self.put(name, value, ttl_ms)
        return there

    async def swap(self, name: str, expected: bytes | None, value: bytes) -> bytes | None:
        there = await self.get(name)
        if there == expected:
            _, until_ms = self.data.values.get(name, (None, None))
            self.data.values[name] = (value, until_ms)
            return value
        return there

    async def delete(self, name: str) -> None:
        self.data.values.pop(name, None)

    def conditions(self) -> list[Condition]:
        """Warn the operator: this store forgets everything at a restart."""
        return [Condition("store-memory", "the memory store keeps nothing across a restart")]

    async def close(self) -> None:
        """Do nothing: Python frees the memory."""
