"""Planted mistakes of progress notes."""

from __future__ import annotations

from collections.abc import Sequence

from ackd.core.ids import LedgerKey
from ackd.ports import StoredNote
from ackd.store.memory import MemoryStore
from tests.simulation.mutant import Mutant
from tests.simulation.notes import WORK
from tests.simulation.parts import Parts
from tests.simulation.store_client import SimStore


class CopiesKnowNoNote(MemoryStore):
    """Who gets a copy hears nothing of what was said of its message."""

    async def notes(self, key: LedgerKey, offsets: Sequence[int]) -> list[bytes | None]:
        """Nothing of what was sent back."""
        record = self.data.records.get(key)
        origins = {} if record is None else record.origins
        pairs = zip(offsets, await super().notes(key, offsets), strict=True)
        return [None if offset in origins else note for offset, note in pairs]


class ToldBeforeItIsKept(SimStore):
    """An extend is answered although its note is in no store."""

    async def put_notes(self, key: LedgerKey, notes: Sequence[StoredNote], bytes_max: int) -> int:
        """Kept, it says."""
        del key, notes, bytes_max
        return 0


class TheFirstNoteStays(MemoryStore):
    """A note of a later lease does not replace one of an earlier."""

    async def put_notes(self, key: LedgerKey, notes: Sequence[StoredNote], bytes_max: int) -> int:
        """Only where there is none."""
        there = await self.notes(key, [each.offset for each in notes])
        fresh = [each for each, before in zip(notes, there, strict=True) if before is None]
        return await super().put_notes(key, fresh, bytes_max)


MUTANTS = (
    Mutant("copies know no note", "I7", Parts(memory=CopiesKnowNoNote), WORK),
    Mutant("a note is told before it is kept", "I7", Parts(store=ToldBeforeItIsKept), WORK),
    Mutant("the first note stays", "I7", Parts(memory=TheFirstNoteStays), WORK),
)
