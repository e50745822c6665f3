"""One timer for everything that falls due: expired leases, ended delays, and upkeep calls to the
store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.handed_leases import beside
from ackd.engine.delivery.window_pressure import WindowPressure
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.claims import CopyClaims

JOURNAL_MS = 50
"""While other sidecars live, an owner reads their settles at least this often (R16)."""
UPKEEP_MS = 100
IDLE_MS = 1_000
COPIES_MAX = 1_000
"""With so many copies on their way to the retry topic, or there without having claimed, no more
messages are sent there: nobody can get them meanwhile, so their deadlines would be kept late (I4).
"""
OnExpired = Callable[[Partition, Iterable[Sequence[int]], Counter[str]], None]
"""Gets the offsets of leases that have expired, and how many they are by the sidecar beside which
their holders work (empty: this one).
"""


# tidy: long-class attributes=13 -- asks each part for which something falls due
class DeadlineTimers:
    """Wakes exactly when the next deadline passes (I4), and finds nothing by scanning."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        membership: Membership,
        dispatcher: Dispatcher,
        pressure: WindowPressure,
        expired: OnExpired,
        bodies: BodySpill,
        claims: CopyClaims,
        copying: Callable[[], int],
    ) -> None:
        self._state = state
        self._partitions = partitions
        self._membership = membership
        self._dispatcher = dispatcher
        self._pressure = pressure
        self._expired = expired
        self._bodies = bodies
        self._claims = claims
        self._copying = copying
        self._context = context
        self._kick = asyncio.Event()
        self._planned_ms = 0
        self._idle = True

    def due(self, due_ms: int) -> None:
        """Wake earlier if `due_ms` (monotonic) is before the planned wake-up."""
        if due_ms < self._planned_ms:
            self._kick.set()

    def wake(self) -> None:
        """Plan the next wake-up anew."""
        self._kick.set()

    def wake_if_idle(self) -> None:
        """End a long idle sleep: messages may be open again, and another sidecar may settle
        them.
        """
        if self._idle:
            self._kick.set()

    async def run(self) -> None:
        """Sleep until something is due, then handle it; until cancelled."""
        upkeep_ms = journal_ms = 0
        while True:
            now_ms = self._context.clock.monotonic_ms()
            if self._idle:
                upkeep_ms, journal_ms = now_ms + UPKEEP_MS, now_ms + JOURNAL_MS
            owned = list(self._partitions.owned.values())
            for partition in owned:
                self._tick(partition, now_ms)
            if now_ms >= upkeep_ms:
                upkeep_ms = now_ms + UPKEEP_MS
                self._upkeep(owned)
            if now_ms >= journal_ms and self._membership.alive:
                journal_ms = self._ask(owned, now_ms)
            self._state.signals.room()
            if self._dispatcher.full:
                # Settles at other sidecars, read from the journal, make room as well.
                self._dispatcher.serve()
            self._pressure.look()
            await self._sleep(owned, now_ms, journal_ms)

    def _tick(self, partition: Partition, now_ms: int) -> None:
        if partition.ledger.dirty or not self._state.health.store_ok:
            return
        self._bodies.look(partition, now_ms)
        if self._copying() < COPIES_MAX:
            stuck = partition.ledger.send_back.stuck(now_ms)
            if stuck:
                partition.send_back(stuck)
        if partition.ledger.tick(now_ms) or partition.ledger.undone:
            self._measure(partition, now_ms)
            partition.perform()
            self._dispatcher.ready(partition)

    def _measure(self, partition: Partition, now_ms: int) -> None:
        """Count the leases that expired, and how long after its deadline each was found (I4)."""
        lapsed = partition.ledger.deadlines.take_lapsed()
        if lapsed:
            name, metrics = self._state.name, self._context.metrics
            lateness = metrics.deadline_lateness.at(name)
            entries, counts = partition.ledger.entries, Counter[str]()
            for due_ms, offsets in lapsed.items():
                lateness.observe((now_ms - due_ms) / 1000, len(offsets))
                counts.update(beside(entries[o].holder) if o in entries else "" for o in offsets)
            metrics.lease_expiries.at(name).inc(counts.total())
            self._expired(partition, lapsed.values(), counts)

    def _upkeep(self, owned: Sequence[Partition]) -> None:
        for partition in owned:
            if partition.ledger.dirty:
                continue
            partition.note_long_leases(self._state.settings.notes_bytes_max)
            if partition.has_upkeep:
                partition.tell()

    def _ask(self, owned: Sequence[Partition], now_ms: int) -> int:
        """Read the journals that no other call has brought lately. Returns when to do so again."""
        next_ms = now_ms + JOURNAL_MS
        for partition in owned:
            ledger = partition.ledger
            if ledger.dirty or not (ledger.entries or self._claims.waits_for(partition.key)):
                continue
            if now_ms - partition.journal_read_ms < JOURNAL_MS // 2:
                next_ms = min(next_ms, partition.journal_read_ms + JOURNAL_MS)
            else:
                partition.tell()
        return next_ms

    async def _sleep(self, owned: Sequence[Partition], now_ms: int, journal_ms: int) -> None:
        self._kick.clear()
        busy = any(partition.ledger.entries or partition.has_upkeep for partition in owned)
        most, self._idle = IDLE_MS, not busy
        if busy:
            most = max(journal_ms - now_ms, 1) if self._membership.alive else UPKEEP_MS
        dues = [
            due for p in owned if not p.ledger.dirty and (due := p.ledger.deadlines.next_due_ms())
        ]
        if not self._state.health.store_ok:
            dues = []
        self._planned_ms = min([now_ms + most, *dues])
        try:
            async with asyncio.timeout(max(self._planned_ms - now_ms, 1) / 1000):
                await self._kick.wait()
        except TimeoutError:
            pass

    async def flush(self, partitions: Sequence[Partition]) -> None:
        """Send the store all pending upkeep of these partitions, and wait. Raises StoreError."""
        await asyncio.gather(*[p.flush() for p in partitions if p.has_upkeep])
