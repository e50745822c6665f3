"""Whose turn it is: of the unfinished messages of one key only the first may be handed out (I6).

A *place* is (what must be kept in order, rank in it): for `ordering = "key"` the message's key and
its offset, for `"partition"` one name for all, for a copy in the retry topic that of its origin. A
message without a place is bound to no order. Only messages of the window are known here, so the
memory that it takes is bounded by the window, however many keys there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from hashlib import blake2b
from heapq import heappop, heappush, nlargest
from typing import Generic, NamedTuple

from ackd.core.ledger.entry import B, Entry

PARTITION = 1
"""The chain of all messages of a partition that is handed out in order as a whole."""
KEY_BYTES = 6
"""Two keys of one hash are kept in one order, which does no harm."""


def key_hash(key: bytes) -> int:
    """The chain of a key, as the store knows it: 2 to 2^48 - 1."""
    digest = blake2b(key, digest_size=KEY_BYTES).digest()
    return max(int.from_bytes(digest, "big"), PARTITION + 1)


class OrderPosition(NamedTuple):
    """Smaller ranks of a chain go first. `home`: of a copy, what is to be told when it is over."""

    chain: Hashable
    rank: int
    home: object = None


_Chain = list[tuple[int, int]]


class KeyOrder(Generic[B]):
    """The places of one window. A chain is a heap of (rank, offset), or one such pair alone.

    Every method is O(log n) in the length of a chain. Finished ones are taken out of a heap when
    they come to its top. `unknown` are unfinished messages whose place nobody can tell: their
    record is gone from the log, so they may stand before any later one.

    `place_of` is asked once a message. `parked`: chains of which earlier messages were sent back,
    so that no other one may be handed out here before the store says that they are over (R19).
    `following`: those of them that may have messages here which have to be sent after them.
    """

    __slots__ = ("_chains", "_places", "_unknown", "following", "parked", "place_of")

    def __init__(self, place_of: Callable[[B], OrderPosition | None]) -> None:
        self.place_of = place_of
        self._places: dict[int, OrderPosition] = {}
        self._chains: dict[Hashable, tuple[int, int] | _Chain] = {}
        self._unknown: set[int] = set()
        self.parked: dict[Hashable, None] = {}
        self.following: dict[Hashable, None] = {}

    def restart(
        self, before: Mapping[int, Entry[B]], now: Mapping[int, Entry[B]], parked: Collection[int]
    ) -> list[tuple[int, OrderPosition]]:
        """The record was read again: keep the places that are known, before anything is made ready.

        `before`, `now`: the entries. Returns the messages of `before` that had a body and a place,
        with it: `arrived` those that are not over.
        """
        places = self._places
        self._places, self._chains, self._unknown = {}, {}, set()
        self.parked, self.following = dict.fromkeys(parked), {}
        for offset, entry in now.items():
            if entry.gone:
                self.gone(offset, places.get(offset))
        return [
            (offset, places[offset])
            for offset, entry in before.items()
            if entry.body is not None and offset in places
        ]

    def line_up(self, body: B) -> None:
        """A message was fetched."""
        place = self.place_of(body)
        if place is not None:
            self.arrived(body.offset, place)

    @property
    def behind(self) -> int:
        """How many wait for an earlier one of their chain."""
        return len(self._places) - len(self._chains)

    def place(self, offset: int) -> OrderPosition | None:
        """Where a message stands; None without an order, or when it is not here."""
        return self._places.get(offset)

    def key(self, offset: int) -> int:
        """The key of a message as the store knows it, 0 = none."""
        place = self._places.get(offset)
        return place.chain if place is not None and isinstance(place.chain, int) else 0

    def end(self, position: int) -> int:
        """The places of all below this offset are known; `position`: where fetching stands."""
        return min(position, *self._unknown) if self._unknown else position

    def gone(self, offset: int, place: OrderPosition | None) -> None:
        """An unfinished message that the log does not have any more."""
        if place is not None:
            self.arrived(offset, place)
        elif offset not in self._places:
            self._unknown.add(offset)

    def arrived(self, offset: int, place: OrderPosition) -> None:
        """An unfinished message, in any order; one that is here already stays where it is."""
        if offset in self._places:
            return
        self._places[offset] = place
        chain, rank, _ = place
        found = self._chains.get(chain)
        if found is None:
            self._chains[chain] = (rank, offset)
        elif isinstance(found, list):
            heappush(found, (rank, offset))
        else:
            # Two in order are a heap.
            self._chains[chain] = sorted((found, (rank, offset)))

    def first(self, offset: int) -> bool:
        """Whether it is the first of its chain; always true of a message without a place."""
        place = self._places.get(offset)
        return place is None or self._head(place.chain) == offset

    def free(self, offset: int) -> bool:
        """Whether it may be handed out: the first of its chain, which is not parked.

        A copy that is ready was claimed, so its home has decided that. After a loss of data a line
        may stand in another order than its copies here; it must come to its end all the same.
        """
        place = self._places.get(offset)
        if place is None or place.home is not None:
            return True
        return place.chain not in self.parked and self._head(place.chain) == offset

    def follow(self, offset: int) -> None:
        """A message that would be ready has to be sent after its parked chain, if it is parked."""
        place = self._places.get(offset)
        if place is not None and place.chain in self.parked:
            self.following[place.chain] = None

    def chain(self, chain: Hashable) -> Iterator[int]:
        """All of a chain, in order."""
        found = self._chains.get(chain)
        for _, offset in sorted(found) if isinstance(found, list) else (found,) if found else ():
            if offset in self._places:
                yield offset

    def longest(self, most: int) -> list[tuple[int, int]]:
        """(first message, how many wait for it) of the chains in which most wait; for people."""
        lengths = (
            (len(found) - 1, found[0][1])
            for found in self._chains.values()
            if isinstance(found, list)
        )
        return [(first, behind) for behind, first in nlargest(most, lengths) if behind]

    def before(self, offset: int) -> int | None:
        """Which message it waits for; None when it is its turn."""
        place = self._places.get(offset)
        head = None if place is None else self._head(place.chain)
        return None if head == offset else head

    def blocked_by(self, offset: int) -> int | None:
        """The earlier message that this one waits for; itself if it has to follow a parked key."""
        before = self.before(offset)
        return offset if before is None and not self.free(offset) else before

    def park(self, chain: Hashable) -> None:
        """A message of this chain was sent back: what is here of it has to follow (R19)."""
        self.parked[chain] = self.following[chain] = None

    def release(self, chain: Hashable) -> int | None:
        """The chain is not parked any more. Returns its first message, if it was and has one."""
        if chain not in self.parked:
            return None
        del self.parked[chain]
        self.following.pop(chain, None)
        return next(self.chain(chain), None)

    def finished(self, offset: int) -> int | None:
        """It is over. Returns the message whose turn it is now because of that."""
        place = self._places.pop(offset, None)
        if place is None:
            self._unknown.discard(offset)
            return None
        chain = place.chain
        found = self._chains[chain]
        if not isinstance(found, list):
            del self._chains[chain]
            return None
        if found[0][1] != offset:
            return None
        while found and found[0][1] not in self._places:
            heappop(found)
        if not found:
            del self._chains[chain]
            return None
        return found[0][1]

    def _head(self, chain: Hashable) -> int:
        found = self._chains[chain]
        return found[0][1] if isinstance(found, list) else found[1]
