"""Which sidecars live and what each owns, from heartbeats in the store; who takes over the
partitions of a silent one (R5).

A broker needs up to 45 s to notice a dead member. Sidecars notice each other through the store
after two seconds, and take over by raising the ownership term; the group's assignment follows
later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

import msgspec

from ackd.ports import Member, Members
from ackd.unreadable import UNREADABLE

LOG = logging.getLogger("ackd.engine")

HEARTBEAT_MS = 300
MANY = 100
"""With so many other sidecars each beats only every `SLOW_HEARTBEAT_MS`."""
SLOW_HEARTBEAT_MS = 500
SILENT_MS = 1_500
FORGET_MS = 3_600_000
UNCONFIRMED_MS = 2_000
"""A sidecar without a confirmed heartbeat for this long grants nothing: others may have taken over,
on a store that it is cut off from (R11).
"""
WITNESS_MS = 10_000
SHORT_NOTE = 1_000
"""Characters of a note that is kept decoded."""
WINNERS_MAX = 10_000
"""So many choices of a successor are remembered while the same sidecars live."""
LAIN_MS = 2_000
"""Messages that are ready for so long are more than the own application takes."""
RIVAL_GONE_MS = 5_000
"""If a newer process with our identity has not sent a heartbeat for this long, it is gone (or its
last heartbeat arrived late).
"""

RecordsBySidecar = dict[str, list[str]]


class LostAnswers(msgspec.Struct, array_like=True, frozen=True):
    """Requests of the process `asker` at the process `owner` whose answers no application has got
    or will get (R21).
    """

    owner: str
    asker: str
    numbers: list[int]


class MemberNote(msgspec.Struct, omit_defaults=True):
    """What a sidecar writes about itself. `settings`: hashes of its shared settings (`drift`).

    `run`: the server run to which it has replayed (R10); `left`: it has stopped cleanly, and others
    may take at once what it owned. `handed`: records that it gave away and that no sidecar owns
    yet; `leaving`: it gives everything away and takes nothing any more, so others may take these at
    once. `leased`: messages that it has under lease. `halted`: it has let go of everything
    for this operation. `peer`: where others reach it; `ready`: messages that it could grant now.
    `signs`: it signs the copies that it makes. `lost`: what owners must hear of a link that broke
    lately, should there be no other one. `counts`: it tells and hears of ready messages beside the
    notes; `ready` is for those builds that do not.
    """

    version: str = ""
    settings: dict[str, str] = {}
    run: str = ""
    left: bool = False
    leaving: bool = False
    handed: list[str] = []
    leased: int = 0
    halted: str = ""
    peer: str = ""
    ready: int = 0
    signs: bool = False
    lost: list[LostAnswers] = []
    counts: bool = False


def write_note(note: MemberNote) -> str:
    """Encode a note for the store."""
    return msgspec.json.encode(note).decode()


def read_note(text: str) -> MemberNote:
    """Decode a note. One of another version may have more fields; an unreadable one is empty.

    Most sidecars of a subscription write the same text: short notes are decoded once, and must not
    be changed.
    """
    return _short_note(text) if len(text) <= SHORT_NOTE else _decode_note(text)


def _decode_note(text: str) -> MemberNote:
    try:
        return msgspec.json.decode(text.encode(), type=MemberNote)
    except UNREADABLE:
        return MemberNote()


_short_note = lru_cache(maxsize=4_096)(_decode_note)


def left_behind(member: Member) -> list[str]:
    """List the records a dead sidecar leaves: those it owned, and those it gave away without a new
    owner.
    """
    return [*member.owned, *read_note(member.note).handed]


@dataclass(slots=True)
class Rival:
    """The newer process with our identity that superseded this one, as long as it beats (R24)."""

    boot: int = 0
    seen_ms: int = 0
    since_ms: int = 0

    def gone(self, members: Members, name: str, now_ms: int) -> bool:
        """Whether no process has beaten under this name for a while of the local clock (the store's
        may jump).

        `now_ms`: the local clock.
        """
        for member in members.members:
            if member.name == name:
                seen_ms = members.now_ms - member.silent_ms
                # Both times are truncated to milliseconds.
                if member.boot != self.boot or abs(seen_ms - self.seen_ms) > 1:
                    self.boot, self.seen_ms, self.since_ms = member.boot, seen_ms, now_ms
        return now_ms - self.since_ms >= RIVAL_GONE_MS


def beat_ms(others: int) -> int:
    """Return the time between two heartbeats of a sidecar that has so many `others`."""
    return HEARTBEAT_MS if others < MANY else SLOW_HEARTBEAT_MS


def coarse(count: int) -> int:
    """Round a count down to a power of two, so that a note does not change with every message."""
    return 1 << count.bit_length() - 1 if count > 0 else 0


def ready_pause_ms(others: int) -> int:
    """How long a sidecar tells the same number of ready messages, at least. Each of N sidecars
    reads each change of the N others, in some 5 us of the store: with a pause of N * N / 2 ms the
    changes of a subscription take 2 % of one of its cores at most.
    """
    return others * others // 2


class ReportedReady:
    """The number of ready messages in a note, for sidecars of older builds. It changes seldom among
    many.

    Where messages have lain for `LAIN_MS`, others hear of it at once: they may have free workers.
    """

    def __init__(self) -> None:
        self._reported = self._again_ms = 0
        self._lain_since_ms: int | None = None

    def count(self, ready: int, others: int, now_ms: int) -> int:
        """Return what to tell now, when `ready` messages are."""
        reported, pause_ms = coarse(ready), ready_pause_ms(others)
        if not ready:
            self._lain_since_ms = None
        elif self._lain_since_ms is None:
            self._lain_since_ms = now_ms
        since_ms = now_ms if self._lain_since_ms is None else self._lain_since_ms
        lain = not self._reported and now_ms - since_ms >= min(pause_ms, LAIN_MS)
        if reported != self._reported and ((reported and lain) or now_ms >= self._again_ms):
            self._reported, self._again_ms = reported, now_ms + pause_ms
        return self._reported


@dataclass(slots=True)
class View:
    """The subscription's other sidecars, as of the last heartbeat.

    `state` is another object whenever a heartbeat has told something new of the other sidecars. A
    store that tells nothing new gives the same tuple of members again; then nothing is computed.
    """

    name: str
    boot: int
    now_ms: int = 0
    alive: list[Member] = field(default_factory=list)
    dead: list[Member] = field(default_factory=list)
    handed: dict[str, int] = field(default_factory=dict)
    state: object = field(default_factory=object)
    _members: tuple[Member, ...] = ()
    _handed_here: dict[str, bool] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _names: list[str] = field(default_factory=list)
    _winners: dict[str, str] = field(default_factory=dict)

    def update(
        self, members: Members, handed: Iterable[str] = (), beating_ms: int = SILENT_MS
    ) -> None:
        """Take in a heartbeat's answer; `handed`: records that this sidecar itself has given away.

        Another boot of our own name is dead whatever it says. A silent sidecar is dead only if this
        one could beat for as long (`beating_ms`): else it was the store that was away.
        """
        if members.members is not self._members:
            self._members = members.members
            self._sort(members.members, beating_ms)
        self._note_handed(members.now_ms, set(handed))

    def _sort(self, members: Iterable[Member], beating_ms: int) -> None:
        self.alive, self.dead, self.state = [], [], object()
        self._handed_here = {}
        for member in members:
            silent = member.silent_ms >= SILENT_MS and beating_ms >= SILENT_MS
            note = read_note(member.note)
            if member.name == self.name:
                if member.boot < self.boot:
                    self.dead.append(member)
            elif silent or note.left:
                self.dead.append(member)
            else:
                self.alive.append(member)
                self._handed_here.update(dict.fromkeys(note.handed, note.leaving))
        self._taken = {text for member in self.alive for text in member.owned}

    def _note_handed(self, now_ms: int, texts: set[str]) -> None:
        """Note since when (store's clock) each handed-over record is without an owner."""
        texts |= self._handed_here.keys()
        self.handed = {text: self.handed.get(text, now_ms) for text in sorted(texts - self._taken)}
        self.now_ms = now_ms

    def taken(self) -> set[str]:
        """Return the records that living sidecars own. Not to be changed."""
        return self._taken

    def orphans(self) -> list[str]:
        """Return records (keys as texts) without a living owner that this sidecar must take.

        Every survivor computes the same winner (rendezvous hashing), so no survivor has to ask.
        """
        taken = self.taken()
        mine = {
            text: None
            for text, since_ms in self.handed.items()
            if (self._handed_here.get(text) or self.now_ms - since_ms >= SILENT_MS)
            and self.winner(text) == self.name
        }
        for member in self.dead:
            for text in left_behind(member):
                if text in taken:
                    continue
                if member.name == self.name or self.winner(text) == self.name:
                    mine[text] = None
        return list(mine)

    def winner(self, text: str, *, leaving: bool = False) -> str:
        """Choose one living sidecar for something that each of them could take; one that leaves
        (`leaving`: this one does) only if nobody stays.
        """
        names = self.staying(leaving=leaving)
        if names != self._names:
            self._names = names
            self._winners.clear()
        if text not in self._winners:
            if len(self._winners) >= WINNERS_MAX:
                self._winners.clear()
            self._winners[text] = max(
                names, key=lambda name: blake2b(f"{name} {text}".encode()).digest()
            )
        return self._winners[text]

    def staying(self, *, leaving: bool = False) -> list[str]:
        """The names among which `winner` chooses, sorted."""
        staying = {each.name for each in self.alive if not read_note(each.note).leaving}
        return sorted(staying if leaving and staying else {self.name, *staying})

    def forgettable(self, owned: Iterable[str]) -> list[Member]:
        """Return dead sidecars that have nothing left to take over.

        One that is only silent may come back and serve settles. If a failover forgets that it did,
        the rest of its entry shows that there is a sidecar to wait for (R10).
        """
        sure = [m for m in self.dead if m.silent_ms > WITNESS_MS or read_note(m.note).left]
        if not sure:
            return []
        taken = self._taken | set(owned)
        return [m for m in sure if taken.issuperset(left_behind(m)) or m.silent_ms > FORGET_MS]

    def left(self, owned: Iterable[str]) -> RecordsBySidecar:
        """Return the records of dead sidecars that nobody has taken yet, by sidecar. `owned`: here.

        A process that came back under its name lists what it owns itself.
        """
        taken = self._taken | set(owned)
        found: RecordsBySidecar = {}
        for member in self.dead:
            rest = [text for text in left_behind(member) if text not in taken]
            if rest:
                found.setdefault(member.name, []).extend(rest)
        return found

    def given_away(self, handed: Iterable[str], owned: Iterable[str]) -> RecordsBySidecar:
        """Return the records that living sidecars let go of and nobody has taken yet, by sidecar.
        `handed`: by this one; `owned`: here.
        """
        taken = self._taken | set(owned)
        given = {each.name: read_note(each.note).handed for each in self.alive}
        given[self.name] = list(handed)
        rest = {name: [t for t in texts if t not in taken] for name, texts in given.items()}
        return {name: texts for name, texts in rest.items() if texts}

    def all_halted(self, operation: str) -> bool:
        """Whether no other sidecar grants: each has reported the halt, has stopped, or lost the
        right to grant.
        """
        return all(
            note.left or note.halted == operation or member.silent_ms > UNCONFIRMED_MS
            for member in [*self.alive, *self.dead]
            for note in (read_note(member.note),)
        )

    def all_replayed(self, run: str) -> bool:
        """Whether every sidecar that may know something has replayed to this server run (R10).

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
