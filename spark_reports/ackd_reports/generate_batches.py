"""Batches for made-up traces: what was handed out and acked, by partition, never sampled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ackd_reports import words
from ackd_reports.words import BUCKET_US

Place = tuple[str, str, str, str]
"""(system, topic, partition, group)."""
_HELD_US: Final = 4 * BUCKET_US


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """A finished batch span without its common attributes."""

    place: Place
    event: str
    start_us: int
    end_us: int
    offsets: tuple[int, ...]
    again: int

    def attributes(self) -> dict[str, str | int]:
        """As a sidecar writes them."""
        system, topic, partition, group = self.place
        fields: dict[str, str | int] = {
            words.EVENT: self.event,
            words.SYSTEM: system,
            words.TOPIC: topic,
            words.PARTITION: partition,
            words.GROUP: group,
            words.BATCH_COUNT: len(self.offsets),
            words.BATCH_OFFSETS: ranges(self.offsets),
        }
        return {**fields, words.BATCH_AGAIN: self.again} if self.again else fields


def ranges(offsets: tuple[int, ...]) -> str:
    """Write offsets as ranges: `100-131,140`."""
    parts: list[list[int]] = []
    for offset in sorted(offsets):
        if parts and offset == parts[-1][1] + 1:
            parts[-1][1] = offset
        else:
            parts.append([offset, offset])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


@dataclass(slots=True)
class Batches:
    """Collects first deliveries and acks of five minutes; what came again stands alone."""

    _open: dict[tuple[Place, str, int], list[tuple[int, int]]] = field(default_factory=dict)

    def add(self, place: Place, event: str, offset: int, at_us: int) -> None:
        """One delivery (`receive`) or ack (`settle`)."""
        self._open.setdefault((place, event, at_us // BUCKET_US), []).append((at_us, offset))

    def done(self, before_us: int | None = None) -> Iterator[MadeBatch]:
        """Take out what is older; everything without `before_us`."""
        bound = None if before_us is None else (before_us - _HELD_US) // BUCKET_US
        for key in [each for each in self._open if bound is None or each[2] < bound]:
            place, event, _ = key
            times, offsets = zip(*self._open.pop(key), strict=True)
            yield MadeBatch(place, event, min(times), max(times), offsets, 0)


def alone(place: Place, event: str, offset: int, at_us: int, *, again: bool) -> MadeBatch:
    """Make a batch span of a single message."""
    return MadeBatch(place, event, at_us, at_us, (offset,), int(again))
