"""Progress notes: whoever gets a message next hears what its worker said last.

A note is a hint: one that was told as kept before a lease was granted comes with that lease, or one
that was said later; of the notes of one lease any may be the last, as a late call may come after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.simulation.book import Coordinate, Holding, name_of
from tests.simulation.plan import Story

SETTINGS: Final = (("stuck_ms", 1_500), ("sidecars", 2))
WORK: Final = Story(("kill", "fuse", "net", "rebalance", "freeze", "app"), SETTINGS, "note")
"""Workers die with what they have done, and messages are sent back meanwhile."""


class Said(NamedTuple):
    """A note under a lease. `told_us` 0: its worker does not know whether it was kept."""

    fence: int
    text: str
    told_us: int = 0


class NoteBook:
    """What workers said."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._said: dict[Coordinate, list[Said]] = defaultdict(list)
        self._fail = fail
        self.heard = 0

    def say(self, at: Coordinate, fence: int, text: str, told_us: int = 0) -> None:
        """On its way, or told to be kept."""
        self._said[at].append(Said(fence, text, told_us))

    def delivered(self, at: Coordinate, holding: Holding, note: str | None) -> None:
        """A lease came with this note."""
        said = [each for each in self._said.get(at, ()) if each.fence <= holding.fence]
        known = [e.fence for e in said if 0 < e.told_us <= holding.granted_us]
        last = max((fence for fence in known if fence < holding.fence), default=None)
        self.heard += note is not None
        if note is None and last is not None:
            self._fail(f"I7: {name_of(at)} comes without the note of its last worker")
        if note is not None and not any(
            each.text == note and (last is None or each.fence >= last) for each in said
        ):
            self._fail(f"I7: {name_of(at)} comes with a note that is not its last: {note}")
