"""What ackd writes beside a committed offset: who wrote it, and what is finished above it.

If the store loses its data, these ranges keep the finished messages among them from coming again
(I2). The marker has a fixed size and comes first, so that it fits into a small metadata limit. As
many ranges follow as fit (rule R8). Form: `ackd1 <cluster> <topic id> <epoch> <base>
<version>|<gap>.<length>,...`, numbers in base 36.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

MARK = "ackd1"
OFFSET_MAX = (1 << 53) - 1
"""Any member of the group may commit any text, so larger numbers are refused: no record has
such an offset.
"""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_DIGITS_MAX = 13
_MARK_FIELDS = 6


@dataclass(frozen=True, slots=True)
class CommittedProgress:
    """Decoded commit metadata. `ranges`: finished [start, end) above `base`."""

    cluster: str
    topic_id: str
    epoch: int
    base: int
    version: int
    ranges: tuple[tuple[int, int], ...]

    def fits(self, cluster: str, topic_id: bytes, offset: int) -> bool:
        """Whether ackd wrote it for this topic and this position. If not, its ranges mean other
        messages.
        """
        return (
            self.cluster == cluster_mark(cluster)
            and self.topic_id == topic_id.hex()
            and self.base == offset
        )

    def of_earlier_topic(self, cluster: str, topic_id: bytes) -> bool:
        """Whether ackd wrote it in this cluster for an earlier topic of the same name."""
        return self.cluster == cluster_mark(cluster) and self.topic_id != topic_id.hex()


def cluster_mark(cluster: str) -> str:
    """Shorten a cluster id to eight characters."""
    return blake2b(cluster.encode(), digest_size=4).hexdigest()


def encode(
    cluster: str,
    topic_id: bytes,
    epoch: int,
    base: int,
    version: int,
    ranges: Iterable[tuple[int, int]],
    chars_max: int,
) -> str:
    """Write the metadata text, at most `chars_max` characters. Raises ValueError if the marker
    does not fit.
    """
    text = " ".join(
        (MARK, cluster_mark(cluster), topic_id.hex(), _b36(epoch), _b36(base), _b36(version))
    )
    if len(text) > chars_max:
        raise ValueError("the broker's metadata limit has no room for ackd's marker")
    parts: list[str] = []
    room = chars_max - len(text) - 1
    position = base
    for start, end in ranges:
        part = f"{_b36(start - position)}.{_b36(end - start)}"
        room -= len(part) + 1
        if room < 0:
            break
        parts.append(part)
        position = end
    return f"{text}|{','.join(parts)}" if parts else text


def decode(metadata: str) -> CommittedProgress | None:
    """Read metadata; None if ackd did not write it, or wrote it in a form that this version
    can't read.
    """
    head, _, tail = metadata.partition("|")
    fields = head.split(" ")
    if len(fields) != _MARK_FIELDS or fields[0] != MARK:
        return None
    try:
        epoch, base, version = (_number(field) for field in fields[3:])
        ranges = []
        if base > OFFSET_MAX:
            return None
        position = base
        for part in tail.split(",") if tail else ():
            gap, _, length = part.partition(".")
            start = position + _number(gap)
            position = start + _number(length)
            if not start < position <= OFFSET_MAX:
                return None
            ranges.append((start, position))
    except ValueError:
        return None
    return CommittedProgress(fields[1], fields[2], epoch, base, version, tuple(ranges))


def _number(text: str) -> int:
    """Raises ValueError for what `_b36` does not write."""
    if len(text) > _DIGITS_MAX or not set(text) <= set(_DIGITS):
        raise ValueError(text)
    return int(text, 36)


def _b36(number: int) -> str:
    text = ""
    while True:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
        if not number:
            return text
