"""Bodies that the engine stores elsewhere (on disk) while their messages wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Generic

from ackd.core.ledger.effects import FetchFrom
from ackd.core.ledger.entries import Entries
from ackd.core.ledger.entry import B, EntryStatus
from ackd.core.ledger.lifecycle import Lifecycle


class Bodies(Generic[B]):
    """The engine takes the offsets that began to wait, replaces a body by a stub (`spilled`), and
    brings the body back later (`restored`).
    """

    __slots__ = ("_entries", "_life", "_waits")

    def __init__(self, entries: Entries[B], life: Lifecycle[B]) -> None:
        self._entries = entries
        self._life = life
        self._waits: dict[int, None] = {}

    def waits(self, offset: int) -> None:
        """Note that a message began to wait, or that its body arrived while it waits."""
        self._waits[offset] = None

    def take_waiting(self) -> Collection[int]:
        """The offsets that were passed to `waits` since the last call."""
        taken = self._waits
        if taken:
            self._waits = {}
        return taken

    def spilled(self, offset: int, stub: B) -> None:
        """The body is on the local disk: keep `stub` in its place, which says how to read it."""
        self._entries.replace_body(offset, stub, spilled=True)

    def restored(self, offset: int, body: B) -> None:
        """Put the body back. A ready message can be granted again."""
        entry = self._entries.by_offset.get(offset)
        if entry is not None and entry.spilled:
            self._entries.replace_body(offset, body, spilled=False)
            if entry.status is EntryStatus.READY:
                self._life.make_ready(offset, entry)

    def lost(self, offsets: Iterable[int]) -> None:
        """These bodies can't be read back: drop the stubs and fetch the messages again."""
        entries = self._entries
        found = [o for o in offsets if (e := entries.by_offset.get(o)) is not None and e.spilled]
        for offset in found:
            entries.lose_body(offset, entries.by_offset[offset])
        if found:
            entries.effects.append(FetchFrom(min(found)))
