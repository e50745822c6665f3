"""Versions of how records stand in the store, and which of them a build reads.

Every record has its layout in its head and every script checks it. A build reads the layout of the
build before it and writes that until an operator has *finalized* the newer one (`ackd store
finalize`): until then the older build can come back.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 1
"""In force where nobody has said anything else."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """The oldest and the newest layout that a build reads and writes."""

    oldest: int
    newest: int

    def reads(self, layout: int) -> bool:
        """Whether a record of this layout can be used."""
        return self.oldest <= layout <= self.newest


HERE = Layouts(FIRST, 1)
"""Of this build. A change of the layout raises `newest`; `oldest` is one less, or the same."""


@dataclass(frozen=True, slots=True)
class InForce:
    """What the store says: the layout that records are written in, and the one that somebody is
    about to put in force (the same if nobody is).
    """

    layout: int = FIRST
    announced: int = FIRST

    def refusal(self, layouts: Layouts) -> str:
        """Why a build must not serve on this store; empty when it may."""
        here = f"this build reads {layouts.oldest} to {layouts.newest}"
        if self.layout > layouts.newest:
            return f"the store's layout is {self.layout}, {here}: start a newer build"
        if self.layout < layouts.oldest:
            return (
                f"the store's layout is {self.layout}, {here}: start a build that reads both, run "
                "`ackd store finalize` with it, then start this one"
            )
        if self.announced > layouts.newest:
            return f"layout {self.announced} is being put in force, {here}: start a newer build"
        return ""
