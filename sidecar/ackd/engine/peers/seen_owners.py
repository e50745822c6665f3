"""The other living sidecars, as those need them who ask over links."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.engine.cluster.members import LostAnswers, read_note
from ackd.ports import READY_MAX, Member


class SeenOwners:
    """What heartbeats say of others, looked through again only if it has changed.

    `addresses`: where they are reached; `owners`: who of them owns partitions; `ready`: how many
    messages lie ready at whom, another object when that was said anew; `whole`: it names all;
    `lost`: answers that others have lost.
    """

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.owners: dict[str, None] = {}
        self.ready: dict[str, int] = {}
        self.whole = True
        self.lost: list[LostAnswers] = []
        self._alive: list[Member] = []
        self._reported: Mapping[str, int] = {}
        self._in_notes: dict[str, int] = {}

    def look(self, alive: list[Member], reported: Mapping[str, int]) -> None:
        """Take in who lives, and the reported numbers; the same objects say nothing new."""
        if alive is self._alive and reported is self._reported:
            return
        if alive is not self._alive:
            self._look_through(alive)
        self._alive, self._reported = alive, reported
        self.ready = {name: count for name, count in reported.items() if name in self.owners}
        self.ready.update(self._in_notes)
        self.whole = len(reported) < READY_MAX

    def _look_through(self, alive: list[Member]) -> None:
        self.addresses, self.owners, self._in_notes, self.lost = {}, {}, {}, []
        for member in alive:
            note = read_note(member.note)
            self.lost += note.lost
            if not note.peer:
                continue
            self.addresses[member.name] = note.peer
            if member.owned:
                self.owners[member.name] = None
                if note.ready:
                    self._in_notes[member.name] = note.ready
