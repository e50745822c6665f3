"""Who lives and who owns what: heartbeats in the store, and partitions whose owner fell silent
(R5).

A broker needs up to 45 s to notice a dead member. Sidecars notice each other through the store
after two seconds, and take over by raising the ownership term; the group's assignment follows when
it follows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from ackd.core.store_layout import FIRST
from ackd.ports import Member, Members

LOG = logging.getLogger("ackd.engine")

HEARTBEAT_MS = 300
SILENT_MS = 1_500
FORGET_MS = 3_600_000
UNCONFIRMED_MS = 2_000
"""After so long without a confirmed heartbeat nothing is granted: others may have taken over, on a
store that this sidecar is cut off from (R11).
"""
WITNESS_MS = 10_000
RIVAL_GONE_MS = 5_000
"""A newer process of the same name that says nothing for so long has ended, or is a late word of
one that ended before this one began.
"""


class MemberNote(msgspec.Struct, omit_defaults=True):
    """What a sidecar says of itself. `settings`: hashes of its semantic settings (`drift`).

    `run` is the server run on which it has replayed (R10); `left`: it has stopped cleanly, and what
    it owned may be taken at once. `leased`: messages that it has under lease. `layouts`: the
    oldest and the newest layout of records that it reads. `halted`: it has let go of everything for
    this operation.
    """

    version: str = ""
    settings: dict[str, str] = {}
    run: str = ""
    left: bool = False
    handed: list[str] = []
    leased: int = 0
    halted: str = ""
    layouts: tuple[int, int] = (FIRST, FIRST)


def write_note(note: MemberNote) -> str:
    """As it stands in the store."""
    return msgspec.json.encode(note).decode()


def read_note(text: str) -> MemberNote:
    """A note of another version may have more fields; what can't be read is empty."""
    try:
        return msgspec.json.decode(text.encode(), type=MemberNote)
    except msgspec.DecodeError:
        return MemberNote()


def behind(member: Member) -> list[str]:
    """What a dead sidecar leaves behind: what it owned, and what it had yet to see owned."""
    return [*member.owned, *read_note(member.note).handed]


@dataclass(slots=True)
class Rival:
    """The process that superseded this one, as long as it beats (R24)."""

    boot: int = 0
    seen_ms: int = 0
    since_ms: int = 0

    def gone(self, members: Members, name: str, now_ms: int) -> bool:
        """Nobody has beaten under this name for a while of the local clock (the store's may jump).

        `now_ms`: the local clock.
        """
        for member in members.members:
            if member.name == name:
                seen_ms = members.now_ms - member.silent_ms
                # Both numbers were cut to milliseconds.
                if member.boot != self.boot or abs(seen_ms - self.seen_ms) > 1:
                    self.boot, self.seen_ms, self.since_ms = member.boot, seen_ms, now_ms
        return now_ms - self.since_ms >= RIVAL_GONE_MS


@dataclass(slots=True)
class View:
    """The subscription's sidecars as of the last heartbeat, this one left out."""

    name: str
    boot: int
    now_ms: int = 0
    alive: list[Member] = field(default_factory=list)
    dead: list[Member] = field(default_factory=list)
    handed: dict[str, int] = field(default_factory=dict)

    def update(
        self, members: Members, handed: Iterable[str] = (), beating_ms: int = SILENT_MS
    ) -> None:
        """Take a heartbeat's answer in; `handed`: what this sidecar itself has given away.

        Another boot of the own name is dead whatever it says. Who is silent is dead only if this
        sidecar could beat for as long (`beating_ms`): else it was the store that was away.
        """
        self.alive, self.dead = [], []
        for member in members.members:
            silent = member.silent_ms >= SILENT_MS and beating_ms >= SILENT_MS
            if member.name == self.name:
                if member.boot < self.boot:
                    self.dead.append(member)
            elif silent or read_note(member.note).left:
                self.dead.append(member)
            else:
                self.alive.append(member)
        self._note_handed(members.now_ms, set(handed))

    def _note_handed(self, now_ms: int, texts: set[str]) -> None:
        """Since when ledgers that were handed over are without an owner (store's clock)."""
        texts.update(text for member in self.alive for text in read_note(member.note).handed)
        self.handed = {text: self.handed.get(text, now_ms) for text in sorted(texts - self.taken())}
        self.now_ms = now_ms

    def taken(self) -> set[str]:
        """Ledgers that living sidecars own."""
        return {text for member in self.alive for text in member.owned}

    def orphans(self) -> list[str]:
        """Ledgers (as texts) that dead sidecars owned and no living one has, and that fall to us.

        Every survivor computes the same winner (rendezvous hashing), so that nobody has to ask.
        """
        taken = self.taken()
        mine = {
            text: None
            for text, since_ms in self.handed.items()
            if self.now_ms - since_ms >= SILENT_MS and self.winner(text) == self.name
        }
        for member in self.dead:
            for text in behind(member):
                if text in taken:
                    continue
                if member.name == self.name or self.winner(text) == self.name:
                    mine[text] = None
        return list(mine)

    def winner(self, text: str) -> str:
        """Whose something is of which every living sidecar could be the one."""
        names = sorted({self.name, *(member.name for member in self.alive)})
        return max(names, key=lambda name: blake2b(f"{name} {text}".encode()).digest())

    def forgettable(self, owned: Iterable[str]) -> list[Member]:
        """Dead sidecars of which nothing is left to take over.

        One that is only silent may come back and serve settles. If a failover forgets that, what is
        left of its entry says that there is somebody to wait for (R10).
        """
        taken = self.taken() | set(owned)
        sure = (m for m in self.dead if m.silent_ms > WITNESS_MS or read_note(m.note).left)
        return [m for m in sure if taken.issuperset(behind(m)) or m.silent_ms > FORGET_MS]

    def all_halted(self, operation: str) -> bool:
        """No other sidecar grants anything: each has said so, has stopped, or may not any more."""
        return all(
            note.left or note.halted == operation or member.silent_ms > UNCONFIRMED_MS
            for member in [*self.alive, *self.dead]
            for note in (read_note(member.note),)
        )

    def all_replayed(self, run: str) -> bool:
        """Every sidecar that may know something has replayed to this server run (R10).

        One that has just fallen silent counts too: it may be cut off and still be a witness.
        """
        witnesses = self.alive + [
            member
            for member in self.dead
            if member.name != self.name
            and member.silent_ms < WITNESS_MS
            and not read_note(member.note).left
        ]
        return all(read_note(member.note).run == run for member in witnesses)
