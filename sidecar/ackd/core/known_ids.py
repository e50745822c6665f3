"""PURE: for how long the place of a broker's message id is known. `ids.lua` does the same on a
server.

A broker with individual acks brings a message again under another place when its hold ends, or when
a crash took the ack. That takes a hold, and some time in which the broker is up and works. So the
time for which ids are kept counts only while messages of their block arrive: while the broker or
all sidecars are down, nothing is forgotten. Ids are kept in slices, each of which goes as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Generic, TypeVar

P = TypeVar("P")

DIGEST_BYTES: Final = 8
"""Of an id. Two of some millions of ids are alike once in 10^12 questions."""
BUCKET_BYTES: Final = 2
"""The first bytes of a digest choose the bucket, the others are kept."""
STEP_MS: Final = 1_000
"""Time between two calls counts up to this."""
SLICES: Final = 6
"""A slice lasts for this part of the time for which ids are kept."""
IN_BUCKET: Final = 64
"""Ids of a bucket that a slice is made for. Up to 128 a server packs them, in 20 bytes each."""
FULL: Final = 96
"""Ids of a bucket at which the next, larger slice begins."""
FIRST_BITS: Final = 4
BITS_MAX: Final = 16
FACTOR: Final = 4
"""By so much a slice is larger than one that was full too early."""
REMOVED_MAX: Final = 256
"""Buckets that one call removes."""
UNUSED_S: Final = 7 * 86_400
"""A server forgets a bucket after this, for whoever stops using ackd."""


def digest(message: bytes) -> bytes:
    """What is kept in place of an id."""
    return blake2b(message, digest_size=DIGEST_BYTES).digest()


@dataclass(slots=True)
class Slice(Generic[P]):
    """Ids that came in one time. `bits`: of the number of buckets; `start`: when it began."""

    start: int
    bits: int
    places: dict[bytes, P] = field(default_factory=dict)


@dataclass(slots=True)
class KnownIds(Generic[P]):
    """The ids of one block of partitions. `active_ms`: the time that counts. `copied_ms`: when a
    message last got, or had, a place of a copy, by that time; -1: none did.
    """

    active_ms: int = 0
    last_ms: int = 0
    copied_ms: int = -1
    slices: list[Slice[P]] = field(default_factory=list)

    def find(self, message: bytes) -> P | None:
        """The place of a message (its digest)."""
        for each in reversed(self.slices):
            if message in each.places:
                return each.places[message]
        return None

    def has_copies(self, keep_ms: int) -> bool:
        """Whether places of copies may be known here: of messages that came first as copies."""
        return self.copied_ms >= 0 and self.active_ms - self.copied_ms <= keep_ms

    def keep(self, message: bytes, place: P, *, copied: bool = False) -> None:
        """Know the place from now on. `copied`: it is a place of a copy."""
        self.slices[-1].places[message] = place
        if copied:
            self.copied_ms = self.active_ms

    def turn(self, now_ms: int, keep_ms: int, *, tick: bool) -> None:
        """Before a call: begin a slice if it is time, forget old ones. `tick`: messages came."""
        if tick:
            self.active_ms += min(max(now_ms - self.last_ms, 0), STEP_MS)
            self.last_ms = now_ms
        if not self.slices:
            self.slices.append(Slice(self.active_ms, FIRST_BITS))
        newest = self.slices[-1]
        count, full = len(newest.places), FULL << newest.bits
        if count > full or self.active_ms - newest.start >= keep_ms // SLICES:
            wanted = count * FACTOR if count > full else count
            bits = min((max(wanted - 1, 0) // IN_BUCKET).bit_length(), BITS_MAX)
            self.slices.append(Slice(self.active_ms, bits))
        while len(self.slices) > 1 and self.slices[1].start <= self.active_ms - keep_ms:
            del self.slices[0]
