"""Planted mistakes of progress notes; see `mutants`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from ackd.api.messages import Delivery
from ackd.core.record import notes as core
from ackd.engine.settlement.notes import Notes, Place
from tests.simulation.mutant import Mutant
from tests.simulation.notes import WORK


def copies_know_no_note() -> Any:
    """Who gets a copy hears nothing of what was said of its message."""
    places = Notes._places

    def own(self: Notes, message: Delivery) -> list[Place]:
        return places(self, message)[:1]

    return patch.object(Notes, "_places", own)


def told_before_it_is_kept() -> Any:
    """An extend is answered although its note is in no store."""

    async def write(self: Notes, said: Sequence[object]) -> None:
        del self, said

    return patch.object(Notes, "write", write)


def the_first_note_stays() -> Any:
    """A note of a later lease does not replace one of an earlier."""
    put = core.Notes.put

    def first(self: core.Notes, offset: int, *more: Any) -> int:
        return 0 if offset in self._notes else put(self, offset, *more)

    return patch.object(core.Notes, "put", first)


MUTANTS = (
    Mutant("copies know no note", "I7", copies_know_no_note, WORK),
    Mutant("a note is told before it is kept", "I7", told_before_it_is_kept, WORK),
    Mutant("the first note stays", "I7", the_first_note_stays, WORK),
)
