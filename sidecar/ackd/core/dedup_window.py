"""Deduplication keys of acked messages, kept for a window of time (rule R18).

The reference for `store/seen.lua`, which decides the same. A message is a repeat if another message
with its key was acked within the window. The ack of the message itself does not make it a repeat.
Acks from before a reset of the partition do not count: an operator who replays wants the messages.
The first question under a new epoch notes the time of the reset, so an entry needs only its time
and no epoch. If entries are lost or forgotten, a repeat gets through; a message that is no repeat
is never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

GENERATIONS = 8
"""The window has eight parts; all entries of one part are forgotten together."""
KEY_BYTES = 16
ORIGIN_BYTES = 8


class Ask(NamedTuple):
    """Whether this key was acked. `origin`: digest of the message's coordinate. `ledger`: index
    of its partition in the list that goes with the question.
    """

    key: bytes
    origin: bytes
    ledger: int


class DedupEntry(NamedTuple):
    """A key and when its message was acked, by the store's clock."""

    key: bytes
    origin: bytes
    acked_ms: int


def generation_ms(window_ms: int) -> int:
    """The length of one of the eight parts, rounded up."""
    return -(-window_ms // GENERATIONS)


@dataclass(slots=True)
class DedupWindow:
    """The keys of one subscription. Times are the store's, integer milliseconds."""

    generations: dict[tuple[int, int], dict[bytes, tuple[bytes, int]]] = field(default_factory=dict)
    since: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    newest_ms: int = 0

    def look(
        self, window_ms: int, ledgers: Sequence[tuple[bytes, int]], asks: Sequence[Ask], now_ms: int
    ) -> list[bool]:
        """Tell for each question whether the message is a repeat. `ledgers`: (topic id +
        partition, epoch).
        """
        after = [self._since(*each, now_ms) for each in ledgers]
        length = generation_ms(window_ms)
        last = now_ms // length
        found = [
            self.generations.get((length, index), {})
            for index in range(last - GENERATIONS, last + 1)
        ]

        def repeat(ask: Ask) -> bool:
            least = max(now_ms - window_ms, after[ask.ledger])
            entries = (each.get(ask.key) for each in found)
            return any(e is not None and e[0] != ask.origin and e[1] > least for e in entries)

        return [repeat(ask) for ask in asks]

    def _since(self, ledger: bytes, epoch: int, now_ms: int) -> int:
        """Acks up to this time belong to an earlier epoch of the partition."""
        known = self.since.get(ledger)
        if known is None or known[0] != epoch:
            # Epoch 0 was never reset: what was acked before counts.
            first = known is None and epoch == 0
            known = (epoch, 0 if first else max(now_ms, self.newest_ms))
            self.since[ledger] = known
        return known[1]

    def remember(
        self, window_ms: int, most: int, entries: Sequence[DedupEntry], now_ms: int
    ) -> int:
        """Keep entries and return how many fitted. The oldest parts of the window are dropped
        to make room.
        """
        length = generation_ms(window_ms)
        last = now_ms // length
        for old in [g for g in self.generations if g[0] == length and g[1] < last - GENERATIONS]:
            del self.generations[old]
        current = self.generations.setdefault((length, last), {})
        kept = 0
        room = self._room(length, last, most, len(entries))
        for key, origin, acked_ms in entries[: max(room, 0)]:
            current[key] = (origin, acked_ms)
            self.newest_ms = max(self.newest_ms, acked_ms)
            kept += 1
        return kept

    def _room(self, length: int, last: int, most: int, wanted: int) -> int:
        sizes = {
            index: len(self.generations.get((length, index), ()))
            for index in range(last - GENERATIONS, last + 1)
        }
        room = most - sum(sizes.values())
        for index in range(last - GENERATIONS, last):
            if room >= wanted:
                break
            if sizes[index]:
                room += sizes[index]
                del self.generations[length, index]
        return room
