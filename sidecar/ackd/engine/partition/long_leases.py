"""Writes into the record who holds a lease, once it is a second old, or half over if it is shorter.

Most leases are settled sooner, and cost nothing. A message that was delivered before has its holder
written with the grant (`Grants.regranted`): few are. So whoever holds a message up is known after a
kill of the owner, too (R26).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from ackd.core.ledger.entry import Entry, EntryStatus
from ackd.core.record.operations import LookUp
from ackd.core.record.protocol import ItemTexts, RecordReply
from ackd.engine.base.spill_file import Held

AFTER_MS = 1_000
RECEIVES_MAX = 100_000
"""Receives whose leases are younger; of more, the holders are not written."""
BATCH_MAX = 1_000


class LongLeases:
    """Of one partition: deliveries whose leases are not that old yet."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, int, Sequence[int]]] = []
        self._count = 0

    def begun(self, offsets: Sequence[int], reply: RecordReply, first: int, now_ms: int) -> None:
        """These were granted to one receive, for the same time. `first`: the first one's result."""
        if offsets and len(self._begun) < RECEIVES_MAX:
            lease_ms = reply.results[first].when_ms - reply.now_ms
            self._count += 1  # so that no two compare their offsets
            heappush(self._begun, (now_ms + min(AFTER_MS, lease_ms // 2), self._count, offsets))

    def due(self, entries: Mapping[int, Entry[Held]], now_ms: int) -> list[tuple[LookUp, str]]:
        """Return what to ask of the record for leases that are old enough now, each with its
        holder.
        """
        begun, found = self._begun, list[tuple[LookUp, str]]()
        while begun and begun[0][0] <= now_ms and len(found) < BATCH_MAX:
            for offset in heappop(begun)[2]:
                entry = entries.get(offset)
                if entry is not None and entry.status is EntryStatus.LEASED and entry.holder:
                    look = LookUp(offset, entry.fence, entry.rollback_epoch)
                    found.append((look, entry.holder))
        return found


def held_by(item: int, holder: str, reason: bytes = b"") -> ItemTexts:
    """Make what a call tells of a lease: who has it, and why its delivery ends."""
    return ItemTexts(item, last=reason, holder=holder.encode("utf-8", "replace"))
