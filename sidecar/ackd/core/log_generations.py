"""PURE: which generation of a queue's log a message belongs to, told by when the broker stored it.

A broker such as RocketMQ uses offsets again after a topic was made again, and after it lost the
tail of a log (power loss, failover to a replica that is behind). Its store time only grows within a
log. So a message that was stored later than another one at its offset or above it is of a new
*generation* of the log, and gets a place of its own: what is finished in an older generation says
nothing about it (I1). `places.lua` does the same on a server.

The time that counts is the highest one seen so far, up to an offset. So a broker whose clock was
set back makes no old message look new (I2). Nor does a new one look old (I1): what lies above a
message of the current generation is of that one, whatever its time. One thing is not noticed: a
log that was cut while the clock was behind the last time seen, and only messages of before that
time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

GENERATION: Final = 1 << 15
"""Partition numbers of one generation. An adapter's own numbers are below it."""
GENERATIONS_MAX: Final = (1 << 16) - 1
"""The last generation whose partitions are below 2^31, which is what all formats hold."""
CUTS_MAX: Final = 16
"""Cuts whose times are kept. Of older ones only the number is known: a message of before the oldest
one kept counts to the generation that this one ended. The log has it still, so all those cuts were
above it, and that generation has no other message at its offset.
"""
SAMPLES_MAX: Final = 24
DENSE: Final = 12
"""The newest samples, which stay: messages come out of order over a few batches at most."""


class GenerationsExhaustedError(ValueError):
    """The log was cut too often; its messages would get the partitions of others."""


class Sample(NamedTuple):
    """`stored_ms`: the highest store time seen of messages up to `offset`, in this generation."""

    offset: int
    stored_ms: int


def partition_of(number: int, generation: int) -> int:
    """The partition in which the messages of a generation have their places. `number`: the
    adapter's.
    """
    return number + generation * GENERATION


def split(partition: int) -> tuple[int, int]:
    """The number and the generation in such a partition."""
    return partition % GENERATION, partition // GENERATION


@dataclass(slots=True)
class LogGenerations:
    """What is known of one log. It never forgets a cut, whatever else is forgotten.

    `cuts`: times, ascending; a message that was stored later than a cut is of a later generation.
    `merged`: how many older cuts there were. `samples`: of the current generation, ascending in
    both; the first one stays, as it says most if the whole log is gone.
    """

    merged: int = 0
    cuts: list[int] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    @property
    def current(self) -> int:
        """The generation of messages that are stored now."""
        return self.merged + len(self.cuts)

    def of(self, offset: int, stored_ms: int) -> tuple[int, bool]:
        """The generation of a message, and whether it is the first one of a new generation.

        `stored_ms` 0: not known. It counts as current: at worst a message comes again (I1 before
        I2). Raises GenerationsExhaustedError.
        """
        if not stored_ms:
            return self.current, False
        older = bisect_left(self.cuts, stored_ms)
        above_first = self.samples and offset > self.samples[0].offset
        if older < len(self.cuts) and not above_first:
            return self.merged + older, False
        at = bisect_left(self.samples, offset, key=attrgetter("offset"))
        if at == len(self.samples) or stored_ms <= self.samples[at].stored_ms:
            return self.current, False
        self._cut(self.samples[at].stored_ms)
        self.samples = [Sample(offset, stored_ms)]
        return self.current, True

    def is_usual(self, offset: int, stored_ms: int) -> bool:
        """Whether a message is where it was first stored, as far as the log tells: then its id says
        no more, unless it came as a copy before. Of a log of which nothing is known, nothing is
        told.
        """
        if self.current or not self.samples:
            return False
        at = bisect_left(self.samples, offset, key=attrgetter("offset"))
        return not stored_ms or at == len(self.samples) or stored_ms <= self.samples[at].stored_ms

    def _cut(self, stored_ms: int) -> None:
        if self.current >= GENERATIONS_MAX:
            raise GenerationsExhaustedError(f"a log was cut {self.current} times")
        self.cuts.append(stored_ms)
        if len(self.cuts) > CUTS_MAX:
            del self.cuts[0]
            self.merged += 1

    def seen(self, messages: Iterable[tuple[int, int]]) -> None:
        """Take a sample of a batch: offsets and store times of messages that `of` took for ones
        of the current generation.
        """
        top_ms = high = -1
        for offset, stored_ms in messages:
            if stored_ms:
                high, top_ms = max(high, offset), max(top_ms, stored_ms)
        if high < 0 or (self.samples and high <= self.samples[-1].offset):
            return
        before_ms = self.samples[-1].stored_ms if self.samples else 0
        self.samples.append(Sample(high, max(top_ms, before_ms)))
        if len(self.samples) > SAMPLES_MAX:
            self._thin()

    def _thin(self) -> None:
        """Drop the sample whose neighbours are closest, compared with how far away it is: what is
        left is spaced by powers, so that it reaches back over the whole log.
        """
        samples = self.samples
        top, drop, least = samples[-1].offset, 0, 0.0
        for at in range(1, len(samples) - DENSE):
            width = (samples[at + 1].offset - samples[at - 1].offset) / (top - samples[at].offset)
            if not drop or width < least:
                drop, least = at, width
        del samples[drop]
