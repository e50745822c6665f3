"""Planted mistakes of business keys (R18)."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.dedup_window import Ask, DedupEntry
from ackd.store.memory import MemoryStore
from ackd.store.memory_outbox import MemoryDedupKeys
from tests.simulation.mutant import Mutant
from tests.simulation.parts import Parts
from tests.simulation.plan import KEYS, Story

ENTRIES_MAX = 100_000


class KeepsAtOnce(MemoryDedupKeys):
    """Who asks for a key has acked it."""

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        """And keep."""
        found = await super().seen(subscription, window_ms, ledgers, asks)
        now_ms = self._now_us() // 1000
        entries = [
            DedupEntry(ask.key, ask.origin, now_ms)
            for ask, repeat in zip(asks, found, strict=True)
            if not repeat
        ]
        await self.remember(subscription, window_ms, ENTRIES_MAX, entries)
        return found


class HasNoEpochs(MemoryDedupKeys):
    """A reset of a partition is nothing to the keys."""

    async def seen(
        self,
        subscription: str,
        window_ms: int,
        ledgers: Sequence[tuple[bytes, int]],
        asks: Sequence[Ask],
    ) -> list[bool]:
        """Always the first epoch."""
        first = [(ledger, 0) for ledger, _ in ledgers]
        return await super().seen(subscription, window_ms, first, asks)


class KeepsKeysAtOnce(MemoryStore):
    """See `KeepsAtOnce`."""

    @property
    def dedup_keys(self) -> MemoryDedupKeys:
        """With the mistake."""
        return KeepsAtOnce(self.data.seen, self._now_us)


class KeepsKeysOverResets(MemoryStore):
    """See `HasNoEpochs`."""

    @property
    def dedup_keys(self) -> MemoryDedupKeys:
        """With the mistake."""
        return HasNoEpochs(self.data.seen, self._now_us)


MUTANTS = (
    Mutant("a key is kept before its ack", "R18", Parts(memory=KeepsKeysAtOnce), KEYS),
    Mutant(
        "after a reset old keys count",
        "R18",
        Parts(memory=KeepsKeysOverResets),
        Story(("reset", "reset"), (("keys", 4), ("commit_ms", 50))),
    ),
)
