"""What one sidecar knows of a subscription's members: a copy of the store's list, kept by changes.

A heartbeat names the version that this copy has, and gets back what has changed since, and who is
silent. The store keeps the sum of all entries' versions beside them. If the copy's sum differs
after the changes, for example because the store was set back or lost data, everything is read
again. So the copy is what the store has, or it is read anew (ADR 19).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from typing import NamedTuple

from ackd.ports import Member, Members, ReadyReport
from ackd.store import codec
from ackd.store.exchange import Answer

SUM = 1 << 32
"""The sum is of the versions modulo this, so that it is exact in Lua's numbers."""
GONE_MAX = 1_000
"""So many removed names are remembered; who has not beaten for longer reads everything."""
SILENT_US = 1_000_000
"""A heartbeat tells the times of those who are silent for this long."""
TELL_AGAIN_US = 10_000_000
"""So often a sidecar tells an unchanged number of ready messages, in case the store has lost it."""
CHANGES, ALL, UNKNOWN = 0, 1, 2
"""Kinds of answers. UNKNOWN: the store's entry of the sidecar is not the one that it thinks."""
_HEAD = Struct(">QQ")


QUIET = 2
"""Words of an answer when nothing has changed and nobody is silent."""


class Beat(NamedTuple):
    """The words of a heartbeat, behind the sidecar's name."""

    boot: int
    since: int
    claimed: int
    entry: bytes
    ready: bytes
    wants: bytes


class Roster:
    """The members of one subscription, as one sidecar knows them."""

    def __init__(self) -> None:
        self._entries: dict[bytes, tuple[int, Member]] = {}
        self._members: tuple[Member, ...] = ()
        self._places: dict[bytes, int] = {}
        self._since = self._sum = 0
        self._written: tuple[int, bytes] = (0, b"")
        self._claimed = 0
        self._reported: int | None = None
        self._reported_us = self._beat_us = 0

    def beat(self, boot: int, entry: bytes, ready: ReadyReport) -> Beat:
        """Say what to send. `entry`: what the sidecar writes about itself now.

        Who does not know its own entry in the store reads everything, before it writes anew: so it
        sees whether the store has lost it.
        """
        before, packed = self._written
        count = b"" if self._reported == ready.count else b"%d" % ready.count
        wants = b"1" if ready.wants else b""
        if count:
            self._reported = None  # until the answer is here
        if not self._claimed or before != boot:
            return Beat(boot, 0, 0, entry, count, wants)
        entry = b"" if packed == entry else entry
        return Beat(boot, self._since, self._claimed, entry, count, wants)

    def answered(self, beat: Beat, name: str, now_us: int, answer: Answer) -> Members | None:
        """Take in the answer to `beat`. None: it does not fit; send what `beat` says now."""
        if isinstance(answer, bytes):  # nothing has changed, and nobody is silent
            self._note_reported(beat, now_us)
            return Members(now_us // 1000, self._members, False, answer, _counts(beat, ()))
        if len(answer) == QUIET:
            self._note_reported(beat, now_us)
            live, found = answer
            ready = _counts(beat, found)
            return Members(now_us // 1000, self._members, False, live, ready)
        live, found, newer, head, kind, own, own_us, changed, gone, silent = answer
        if kind == UNKNOWN:
            self._claimed = 0
            return None
        version, total = _HEAD.unpack(head) if head else (0, 0)
        self._take(changed, gone, everything=kind == ALL)
        superseded = newer == b"1"
        if not superseded:
            self._note_reported(beat, now_us)
        if superseded:
            self._claimed = 0
        elif beat.entry:
            self._written, self._claimed = (beat.boot, beat.entry), int(own)
        if self._sum != total and kind != ALL:
            self._since = 0
            return None
        self._since = version
        seen_us = dict(zip(silent[::2], map(int, silent[1::2]), strict=True))
        if superseded and own_us:
            seen_us[name.encode()] = int(own_us)
        members = self._with(seen_us, now_us)
        return Members(now_us // 1000, members, superseded, live, _counts(beat, found))

    def _note_reported(self, beat: Beat, now_us: int) -> None:
        """The store has the number of ready messages. Who was silent before this beat may have been
        passed over, and tells it again with the next.
        """
        if beat.ready:
            self._reported, self._reported_us = int(beat.ready), now_us
        again = not 0 <= now_us - self._reported_us < TELL_AGAIN_US
        if again or not 0 <= now_us - self._beat_us < SILENT_US:
            self._reported = None
        self._beat_us = now_us

    def _take(self, changed: Sequence[bytes], gone: Sequence[bytes], *, everything: bool) -> None:
        if everything:
            self._entries.clear()
            self._sum = 0
        for name in gone:
            version, _ = self._entries.pop(name, (0, None))
            self._sum -= version % SUM
        for name, packed in zip(changed[::2], changed[1::2], strict=True):
            before, _ = self._entries.pop(name, (0, None))
            version, member = codec.decode_member(name, packed)
            self._entries[name] = version, member
            self._sum += version % SUM - before % SUM
        if everything or changed or gone:
            names = sorted(self._entries)
            self._places = {name: place for place, name in enumerate(names)}
            self._members = tuple([self._entries[name][1] for name in names])

    def _with(self, seen_us: dict[bytes, int], now_us: int) -> tuple[Member, ...]:
        """Return all members: the same tuple as before if nothing has changed and nobody is
        silent.
        """
        if not seen_us:
            return self._members
        members = list(self._members)
        for name, us in seen_us.items():
            place = self._places.get(name)
            if place is not None:
                members[place] = replace(members[place], silent_ms=(now_us - us) // 1000)
        return tuple(members)


def _counts(beat: Beat, found: Sequence[bytes]) -> dict[str, int] | None:
    if not beat.wants:
        return None
    return {name.decode(): int(count) for name, count in zip(found[::2], found[1::2], strict=True)}
