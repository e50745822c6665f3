"""Bodies that are kept elsewhere for a while, because their messages wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic

from ackd.core.ledger.effects import FetchFrom
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import B, EntryStatus
from ackd.core.ledger.lifecycle import Lifecycle


class Bodies(Generic[B]):
    """Whoever keeps bodies elsewhere takes the offsets that began to wait, puts a stub in the place
    of a body (`spilled`), and brings it back (`restored`).
    """

    __slots__ = ("_entries", "_life", "_waits")

    def __init__(self, entries: Entries[B], life: Lifecycle[B]) -> None:
        self._entries = entries
        self._life = life
        self._waits: dict[int, None] = {}

    def waits(self, offset: int) -> None:
        """This one began to wait, or got a body meanwhile."""
        self._waits[offset] = None

    def take_waiting(self) -> Collection[int]:
        """The offsets of `waits` since this was last asked."""
        taken = self._waits
        if taken:
            self._waits = {}
        return taken

    def spilled(self, offset: int, stub: B) -> None:
        """`stub` stands for the body, which can be read back."""
        self._entries.replace_body(offset, stub, spilled=True)

    def restored(self, offset: int, body: B) -> None:
        """The body is here again; what is ready can be handed out."""
        entry = self._entries.by_offset.get(offset)
        if entry is not None and entry.spilled:
            self._entries.replace_body(offset, body, spilled=False)
            if entry.hold is EntryStatus.READY:
                self._life.make_ready(offset, entry)

    def lost(self, offsets: Iterable[int]) -> None:
        """These can't be read back: they are fetched again."""
        entries = self._entries
        found = [o for o in offsets if (e := entries.by_offset.get(o)) is not None and e.spilled]
        for offset in found:
            entries.lose_body(offset, entries.by_offset[offset])
        if found:
            entries.effects.append(FetchFrom(min(found)))
