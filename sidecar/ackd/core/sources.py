"""PURE: which partition numbers the queues of a topic's brokers get. `sources.lua` does the same on
a server.

A *source* is one topic on one broker. It gets numbers by blocks of 16, in the order in which ackd
first meets brokers and queues, and keeps them for good: whatever brokers come and go, no record is
ever another queue's. A topic's only broker begins at 0, so there a partition has its queue's
number, and records of before there were blocks go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

BLOCK: Final = 16
"""Queues of a block: most topics have no more on a broker."""
COPIES: Final = 1 << 14
"""Numbers from here on are for copies that a broker made of messages which nobody knows any more;
numbers of queues are below. Both are below `GENERATION` of `ackd.core.log_generations`.
"""
BLOCKS: Final = COPIES // BLOCK
SEEN_EACH_MS: Final = 10_000
"""That a source is still there is written so often."""


class SourcesExhaustedError(ValueError):
    """A topic has more brokers and queues than there are numbers."""


@dataclass(slots=True)
class NumberedSource:
    """What is known of one source. `queues`: the most that it ever had; `seen_ms`: when a sidecar
    last found it in the topic's route.
    """

    seen_ms: int = 0
    queues: int = 0
    blocks: list[int] = field(default_factory=list)


def number_of(blocks: Sequence[int], queue: int) -> int:
    """The partition number of a queue whose block is known."""
    return blocks[queue // BLOCK] * BLOCK + queue % BLOCK


def block_of(partition: int, generation: int) -> int:
    """The block of a partition, also of one of copies or of a later generation. `generation`: how
    many numbers each has.
    """
    return partition % generation % COPIES // BLOCK


@dataclass(slots=True)
class SourceNumbers:
    """The sources of one topic, by the broker's name. None is ever forgotten."""

    known: dict[str, NumberedSource] = field(default_factory=dict)

    def seen(self, found: Iterable[tuple[str, int]], logs: Iterable[int], now_ms: int) -> None:
        """A sidecar found these brokers in the route, with so many queues.

        `logs`: numbers of queues of which something is known. Those that no source has are not
        given away, as their records are another queue's, but to the topic's only broker, whose
        they are. Raises SourcesExhaustedError.
        """
        found = [*found]
        taken = {block for each in self.known.values() for block in each.blocks}
        if self.known or len(found) > 1:
            taken |= {number % COPIES // BLOCK for number in logs}
        for name, queues in found:
            source = self.known.get(name, NumberedSource())
            while len(source.blocks) * BLOCK < queues:
                block = next(each for each in range(BLOCKS + 1) if each not in taken)
                if block >= BLOCKS:
                    raise SourcesExhaustedError(f"a topic has more than {BLOCKS} blocks of queues")
                source.blocks.append(block)
                taken.add(block)
            source.queues = max(source.queues, queues)
            if now_ms - source.seen_ms >= SEEN_EACH_MS:
                source.seen_ms = now_ms
            self.known[name] = source
