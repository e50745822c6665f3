"""Progress notes of one partition: what a worker said of a message, for whoever gets it next.

The reference for `store/notes.lua`. Notes are beside a record and decide nothing in it. A note of
an earlier lease never replaces one of a later (the larger fence wins). Beyond a bound on their
bytes the oldest are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class NoteStore:
    """Notes by offset, the oldest first."""

    def __init__(self) -> None:
        self._notes: dict[int, tuple[int, bytes]] = {}
        self.bytes = 0

    def put(self, offset: int, fence: int, note: bytes, bytes_max: int) -> int:
        """Keep a note; an empty one takes it away. How many others were dropped for it."""
        before = self._notes.get(offset)
        if before is not None and before[0] > fence:
            return 0
        self.drop([offset])
        if not note:
            return 0
        self._notes[offset] = (fence, note)
        self.bytes += len(note)
        dropped = 0
        while self.bytes > bytes_max and len(self._notes) > 1:
            self.drop([next(iter(self._notes))])
            dropped += 1
        return dropped

    def get(self, offsets: Sequence[int]) -> list[bytes | None]:
        """The notes of these, None where there is none."""
        return [None if (found := self._notes.get(o)) is None else found[1] for o in offsets]

    def drop(self, offsets: Iterable[int]) -> None:
        """Forget them."""
        for offset in offsets:
            found = self._notes.pop(offset, None)
            if found is not None:
                self.bytes -= len(found[1])
