"""Planted mistakes of progress notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ackd.core.ids import LedgerKey
from ackd.core.record.protocol import CallTexts, MessageTexts, RecordCall, RecordReply
from ackd.store.memory import MemoryStore
from tests.simulation.mutant import Mutant
from tests.simulation.notes import WORK
from tests.simulation.parts import Parts


class CopiesKnowNoNote(MemoryStore):
    """Who gets a copy hears nothing of what was said of its message."""

    async def texts(self, key: LedgerKey, offsets: Sequence[int]) -> list[MessageTexts | None]:
        """Nothing of what was sent back."""
        record = self.data.records.get(key)
        origins = {} if record is None else record.origins
        pairs = zip(offsets, await super().texts(key, offsets), strict=True)
        return [None if offset in origins else texts for offset, texts in pairs]


class ToldBeforeItIsKept(MemoryStore):
    """An extend is answered although its note is in no store."""

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Kept, it says."""
        return await super().apply([replace(call, texts=CallTexts()) for call in calls])


class TheFirstNoteStays(MemoryStore):
    """A note of a later lease does not replace one of an earlier."""

    async def apply(self, calls: Sequence[RecordCall]) -> list[RecordReply]:
        """Only where there is none."""
        return await super().apply([await self._fresh(call) for call in calls])

    async def _fresh(self, call: RecordCall) -> RecordCall:
        items = call.texts.items
        there = await self.texts(call.key, [call.ops[each.item].offset for each in items])
        pairs = zip(items, there, strict=True)
        kept = [each for each, before in pairs if before is None or not before.note]
        return replace(call, texts=CallTexts(kept))


MUTANTS = (
    Mutant("copies know no note", "I7", Parts(memory=CopiesKnowNoNote), WORK),
    Mutant("a note is told before it is kept", "I7", Parts(memory=ToldBeforeItIsKept), WORK),
    Mutant("the first note stays", "I7", Parts(memory=TheFirstNoteStays), WORK),
)
