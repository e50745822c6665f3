"""The order of messages of one key: only the first unfinished one may be delivered (I6).

A message's *position* (`OrderPosition`) is its ordering key, whose messages must be kept in order,
and its rank among these. For `ordering = "key"` the two are the hash of its key and its offset; for
`"partition"` all messages share one ordering key; a retry copy has the position of its origin. A
message without a position has no order. Only messages of the window are stored here, so the window
bounds the memory, however many keys there are. A blocked key has earlier messages in the retry
topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from hashlib import blake2b
from heapq import heappop, heappush, nlargest
from typing import Generic, NamedTuple

from ackd.core.ledger.entry import B, Entry

PARTITION = 1
"""The one ordering key of a partition that is delivered in order as a whole."""
KEY_BYTES = 6
"""Two keys with the same hash share one order, which does no harm."""


def key_hash(key: bytes) -> int:
    """The ordering key of a message's key, which is also its number in the store: 2 to 2^48 - 1."""
    digest = blake2b(key, digest_size=KEY_BYTES).digest()
    return max(int.from_bytes(digest, "big"), PARTITION + 1)


class OrderPosition(NamedTuple):
    """Smaller ranks of a key go first. `origin_record`: for a retry copy, the origin record whose
    key queue it leaves when it is finished.
    """

    key: Hashable
    rank: int
    origin_record: object = None


_Heap = list[tuple[int, int]]


class KeyOrder(Generic[B]):
    """The positions of one window. A key has a heap of (rank, offset), or one such pair alone.

    Every method is O(log n) in the messages of a key. A finished message is taken out of its heap
    when it reaches the top. `unknown` are unfinished messages without a known position: the log no
    longer has them, so any later message may have to wait for them.

    `position_of` is called once for each message. `blocked`: blocked keys, whose earlier messages
    moved to the retry topic. None of their messages may be delivered from here until the store
    reports the key as free (R19). `following`: the blocked keys that may have messages here, which
    have to follow into the retry topic.
    """

    __slots__ = ("_by_key", "_positions", "_unknown", "blocked", "following", "position_of")

    def __init__(self, position_of: Callable[[B], OrderPosition | None]) -> None:
        self.position_of = position_of
        self._positions: dict[int, OrderPosition] = {}
        self._by_key: dict[Hashable, tuple[int, int] | _Heap] = {}
        self._unknown: set[int] = set()
        self.blocked: dict[Hashable, None] = {}
        self.following: dict[Hashable, None] = {}

    def restart(
        self, before: Mapping[int, Entry[B]], now: Mapping[int, Entry[B]], blocked: Collection[int]
    ) -> list[tuple[int, OrderPosition]]:
        """Start again from a re-read record, before any message becomes ready.

        `before`, `now`: the entries. Returns the messages of `before` that had a body and a
        position, with the position. The caller passes the unfinished ones to `arrived`.
        """
        positions = self._positions
        self._positions, self._by_key, self._unknown = {}, {}, set()
        self.blocked, self.following = dict.fromkeys(blocked), {}
        for offset, entry in now.items():
            if entry.gone:
                self.gone(offset, positions.get(offset))
        return [
            (offset, positions[offset])
            for offset, entry in before.items()
            if entry.body is not None and offset in positions
        ]

    def enqueue(self, body: B) -> None:
        """Give a fetched message its position."""
        position = self.position_of(body)
        if position is not None:
            self.arrived(body.offset, position)

    @property
    def waiting(self) -> int:
        """How many messages wait for an earlier one of their key."""
        return len(self._positions) - len(self._by_key)

    def position(self, offset: int) -> OrderPosition | None:
        """A message's position; None if it has none or is not in the window."""
        return self._positions.get(offset)

    def key(self, offset: int) -> int:
        """The hash of a message's key as the store knows it, 0 = none."""
        position = self._positions.get(offset)
        return position.key if position is not None and isinstance(position.key, int) else 0

    def end(self, next_offset: int) -> int:
        """The offset below which all positions are known. `next_offset`: the one to fetch next."""
        return min(next_offset, *self._unknown) if self._unknown else next_offset

    def gone(self, offset: int, position: OrderPosition | None) -> None:
        """Register an unfinished message that the log no longer has."""
        if position is not None:
            self.arrived(offset, position)
        elif offset not in self._positions:
            self._unknown.add(offset)

    def arrived(self, offset: int, position: OrderPosition) -> None:
        """Register an unfinished message. One that is registered already stays as it is."""
        if offset in self._positions:
            return
        self._positions[offset] = position
        key, rank, _ = position
        found = self._by_key.get(key)
        if found is None:
            self._by_key[key] = (rank, offset)
        elif isinstance(found, list):
            heappush(found, (rank, offset))
        else:
            # Two in order are a heap.
            self._by_key[key] = sorted((found, (rank, offset)))

    def first(self, offset: int) -> bool:
        """Whether it is the first of its key. Always true for a message without a position."""
        position = self._positions.get(offset)
        return position is None or self._head(position.key) == offset

    def free(self, offset: int) -> bool:
        """Whether it may be delivered: it is the first of its key, which is not blocked.

        Always true for a retry copy: a copy that is ready has claimed its origin record, and the
        store checked the order then. After a loss of data a key queue may have another order than
        its copies here, and it must still be worked off.
        """
        position = self._positions.get(offset)
        if position is None or position.origin_record is not None:
            return True
        return position.key not in self.blocked and self._head(position.key) == offset

    def follow(self, offset: int) -> None:
        """If its key is blocked, this message, ready otherwise, must follow it (R19)."""
        position = self._positions.get(offset)
        if position is not None and position.key in self.blocked:
            self.following[position.key] = None

    def of_key(self, key: Hashable) -> Iterator[int]:
        """The messages of a key, in order."""
        found = self._by_key.get(key)
        for _, offset in sorted(found) if isinstance(found, list) else (found,) if found else ():
            if offset in self._positions:
                yield offset

    def most_waiting(self, most: int) -> list[tuple[int, int]]:
        """(first message, how many wait for it) of the keys with the most; shown to operators."""
        lengths = (
            (len(found) - 1, found[0][1])
            for found in self._by_key.values()
            if isinstance(found, list)
        )
        return [(first, waiting) for waiting, first in nlargest(most, lengths) if waiting]

    def before(self, offset: int) -> int | None:
        """Return the first message of its key, for which it waits; None if it is the first."""
        position = self._positions.get(offset)
        head = None if position is None else self._head(position.key)
        return None if head == offset else head

    def blocked_by(self, offset: int) -> int | None:
        """The earlier message that this one waits for; itself if it must follow a blocked key."""
        before = self.before(offset)
        return offset if before is None and not self.free(offset) else before

    def block(self, key: Hashable) -> None:
        """Block a key: a message of it moved to the retry topic, the rest must follow (R19)."""
        self.blocked[key] = self.following[key] = None

    def release(self, key: Hashable) -> int | None:
        """Unblock a key. Returns its first message, if it was blocked and has one."""
        if key not in self.blocked:
            return None
        del self.blocked[key]
        self.following.pop(key, None)
        return next(self.of_key(key), None)

    def finished(self, offset: int) -> int | None:
        """Remove a finished message. Returns the message that is the first of its key by that."""
        position = self._positions.pop(offset, None)
        if position is None:
            self._unknown.discard(offset)
            return None
        key = position.key
        found = self._by_key[key]
        if not isinstance(found, list):
            del self._by_key[key]
            return None
        if found[0][1] != offset:
            return None
        while found and found[0][1] not in self._positions:
            heappop(found)
        if not found:
            del self._by_key[key]
            return None
        return found[0][1]

    def _head(self, key: Hashable) -> int:
        found = self._by_key[key]
        return found[0][1] if isinstance(found, list) else found[1]
