"""The order of messages of one key: only the first unfinished one may be delivered (I6).

A message's *place* (`OrderPosition`) is its chain, which is what must be kept in order, and its
rank in that chain. For `ordering = "key"` these are the hash of its key and its offset; for
`"partition"` all messages share one chain; a retry copy has the place of its origin. A message
without a place has no order. Only messages of the window are stored here, so the window bounds the
memory, however many keys there are. A blocked chain has earlier messages in the retry topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from hashlib import blake2b
from heapq import heappop, heappush, nlargest
from typing import Generic, NamedTuple

from ackd.core.ledger.entry import B, Entry

PARTITION = 1
"""The one chain of a partition that is delivered in order as a whole."""
KEY_BYTES = 6
"""Two keys with the same hash share one order, which does no harm."""


def key_hash(key: bytes) -> int:
    """The chain of a key, which is also its number in the store: 2 to 2^48 - 1."""
    digest = blake2b(key, digest_size=KEY_BYTES).digest()
    return max(int.from_bytes(digest, "big"), PARTITION + 1)


class OrderPosition(NamedTuple):
    """Smaller ranks of a chain go first. `origin_record`: for a retry copy, the origin record whose
    key queue it leaves when it is finished.
    """

    chain: Hashable
    rank: int
    origin_record: object = None


_Chain = list[tuple[int, int]]


class KeyOrder(Generic[B]):
    """The places of one window. A chain is a heap of (rank, offset), or one such pair alone.

    Every method is O(log n) in the length of a chain. A finished message is taken out of its heap
    when it reaches the top. `unknown` are unfinished messages without a known place: the log no
    longer has them, so any later message may have to wait for them.

    `place_of` is called once for each message. `blocked`: blocked chains, whose earlier messages
    moved to the retry topic. None of their messages may be delivered from here until the store
    reports the chain as free (R19). `following`: the blocked chains that may have messages here,
    which have to follow into the retry topic.
    """

    __slots__ = ("_chains", "_places", "_unknown", "blocked", "following", "place_of")

    def __init__(self, place_of: Callable[[B], OrderPosition | None]) -> None:
        self.place_of = place_of
        self._places: dict[int, OrderPosition] = {}
        self._chains: dict[Hashable, tuple[int, int] | _Chain] = {}
        self._unknown: set[int] = set()
        self.blocked: dict[Hashable, None] = {}
        self.following: dict[Hashable, None] = {}

    def restart(
        self, before: Mapping[int, Entry[B]], now: Mapping[int, Entry[B]], blocked: Collection[int]
    ) -> list[tuple[int, OrderPosition]]:
        """Start again from a re-read record, before any message becomes ready.

        `before`, `now`: the entries. Returns the messages of `before` that had a body and a place,
        with the place. The caller passes the unfinished ones to `arrived`.
        """
        places = self._places
        self._places, self._chains, self._unknown = {}, {}, set()
        self.blocked, self.following = dict.fromkeys(blocked), {}
        for offset, entry in now.items():
            if entry.gone:
                self.gone(offset, places.get(offset))
        return [
            (offset, places[offset])
            for offset, entry in before.items()
            if entry.body is not None and offset in places
        ]

    def enqueue(self, body: B) -> None:
        """Give a fetched message its place."""
        place = self.place_of(body)
        if place is not None:
            self.arrived(body.offset, place)

    @property
    def behind(self) -> int:
        """How many messages wait for an earlier one of their chain."""
        return len(self._places) - len(self._chains)

    def place(self, offset: int) -> OrderPosition | None:
        """A message's place; None if it has none or is not in the window."""
        return self._places.get(offset)

    def key(self, offset: int) -> int:
        """The hash of a message's key as the store knows it, 0 = none."""
        place = self._places.get(offset)
        return place.chain if place is not None and isinstance(place.chain, int) else 0

    def end(self, position: int) -> int:
        """The offset below which all places are known. `position`: the next offset to fetch."""
        return min(position, *self._unknown) if self._unknown else position

    def gone(self, offset: int, place: OrderPosition | None) -> None:
        """Register an unfinished message that the log no longer has."""
        if place is not None:
            self.arrived(offset, place)
        elif offset not in self._places:
            self._unknown.add(offset)

    def arrived(self, offset: int, place: OrderPosition) -> None:
        """Register an unfinished message. One that is registered already keeps its place."""
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
        """Whether it is the first of its chain. Always true for a message without a place."""
        place = self._places.get(offset)
        return place is None or self._head(place.chain) == offset

    def free(self, offset: int) -> bool:
        """Whether it may be delivered: it is the first of its chain, which is not blocked.

        Always true for a retry copy: a copy that is ready has claimed its origin record, and the
        store checked the order then. After a loss of data a key queue may have another order than
        its copies here, and it must still be worked off.
        """
        place = self._places.get(offset)
        if place is None or place.origin_record is not None:
            return True
        return place.chain not in self.blocked and self._head(place.chain) == offset

    def follow(self, offset: int) -> None:
        """If its chain is blocked, this message, ready otherwise, must follow it (R19)."""
        place = self._places.get(offset)
        if place is not None and place.chain in self.blocked:
            self.following[place.chain] = None

    def chain(self, chain: Hashable) -> Iterator[int]:
        """The messages of a chain, in order."""
        found = self._chains.get(chain)
        for _, offset in sorted(found) if isinstance(found, list) else (found,) if found else ():
            if offset in self._places:
                yield offset

    def longest(self, most: int) -> list[tuple[int, int]]:
        """(first message, how many wait for it) of the longest chains; shown to operators."""
        lengths = (
            (len(found) - 1, found[0][1])
            for found in self._chains.values()
            if isinstance(found, list)
        )
        return [(first, behind) for behind, first in nlargest(most, lengths) if behind]

    def before(self, offset: int) -> int | None:
        """Return the first message of its chain, for which it waits; None if it is the first."""
        place = self._places.get(offset)
        head = None if place is None else self._head(place.chain)
        return None if head == offset else head

    def blocked_by(self, offset: int) -> int | None:
        """The earlier message that this one waits for; itself if it must follow a blocked key."""
        before = self.before(offset)
        return offset if before is None and not self.free(offset) else before

    def block(self, chain: Hashable) -> None:
        """Block a chain: a message of it moved to the retry topic, the rest must follow (R19)."""
        self.blocked[chain] = self.following[chain] = None

    def release(self, chain: Hashable) -> int | None:
        """Unblock a chain. Returns its first message, if it was blocked and has one."""
        if chain not in self.blocked:
            return None
        del self.blocked[chain]
        self.following.pop(chain, None)
        return next(self.chain(chain), None)

    def finished(self, offset: int) -> int | None:
        """Remove a finished message. Returns the message that is the first of the chain by that."""
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
