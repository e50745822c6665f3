"""Finished offsets as a bitmap in chunks of 2^15 offsets (4 KiB each).

The only structure of those measured without a bad case: a stuck head with 100,000 finished offsets
above it costs 13 KB, sparse acks cost no more than dense ones, and releasing the head is a byte
scan. Bits are numbered as Redis numbers them (SETBIT): offset 0 is the top bit of byte 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

CHUNK_SHIFT = 15
CHUNK_OFFSETS = 1 << CHUNK_SHIFT
CHUNK_BYTES = CHUNK_OFFSETS >> 3
_MASK = CHUNK_OFFSETS - 1
_FULL = b"\xff"
_FULL_CHUNK = bytearray(_FULL * CHUNK_BYTES)
"""Shared by all chunks that a gap fills: a bit that is set stays set, so nobody changes it."""


class ChunkedBitmap:
    """A set of offsets. Chunks that were never touched take no memory."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: dict[int, bytearray] = {}

    @classmethod
    def of(cls, chunks: Mapping[int, bytes]) -> ChunkedBitmap:
        """Make one from a snapshot's chunks, by index."""
        found = cls()
        for index, data in chunks.items():
            found.load(index, data)
        return found

    def __contains__(self, offset: int) -> bool:
        chunk = self.chunks.get(offset >> CHUNK_SHIFT)
        if chunk is None:
            return False
        low = offset & _MASK
        return bool(chunk[low >> 3] & (0x80 >> (low & 7)))

    def add(self, offset: int) -> None:
        chunk = self.chunks.get(offset >> CHUNK_SHIFT)
        if chunk is None:
            chunk = self.chunks[offset >> CHUNK_SHIFT] = bytearray(CHUNK_BYTES)
        low = offset & _MASK
        chunk[low >> 3] |= 0x80 >> (low & 7)

    def add_range(self, start: int, end: int) -> None:
        """Mark [start, end). A wide gap costs one dictionary entry for each chunk, no more."""
        while start < end:
            index = start >> CHUNK_SHIFT
            stop = min(end, (index + 1) << CHUNK_SHIFT)
            if stop - start == CHUNK_OFFSETS:
                self.chunks[index] = _FULL_CHUNK
                start = stop
            elif start & 7 == 0 and stop - start >= 8:  # noqa: PLR2004 - bits of a byte
                chunk = self.chunks.setdefault(index, bytearray(CHUNK_BYTES))
                first, count = (start & _MASK) >> 3, (stop - start) >> 3
                chunk[first : first + count] = _FULL * count
                start += count << 3
            else:
                self.add(start)
                start += 1

    def full(self, start: int, count: int) -> bool:
        """Whether 8 * `count` offsets from `start` on are marked: whole bytes of one chunk."""
        chunk = self.chunks.get(start >> CHUNK_SHIFT)
        first = (start & _MASK) >> 3
        return chunk is not None and chunk[first : first + count] == _FULL * count

    def empty(self, start: int, end: int) -> bool:
        """True only if no offset of [start, end) is marked. A quick check, which may answer False
        for an empty range: it looks at whole bytes, and at no range wider than a chunk.
        """
        if end - start > CHUNK_OFFSETS:
            return False
        for index in (start >> CHUNK_SHIFT, (end - 1) >> CHUNK_SHIFT):
            chunk = self.chunks.get(index)
            if chunk is not None:
                base = index << CHUNK_SHIFT
                part = chunk[max(start - base, 0) >> 3 : (min(end - base, CHUNK_OFFSETS) + 7) >> 3]
                if part.count(0) < len(part):
                    return False
        return True

    def first_clear(self, offset: int) -> int:
        """The smallest offset >= `offset` that is not marked."""
        while True:
            chunk = self.chunks.get(offset >> CHUNK_SHIFT)
            if chunk is None:
                return offset
            if chunk is _FULL_CHUNK:
                offset = (offset | _MASK) + 1
                continue
            low = offset & _MASK
            byte = chunk[low >> 3] | (0xFF00 >> (low & 7) & 0xFF)
            if byte != 0xFF:  # noqa: PLR2004 - all bits of a byte
                return (offset & ~7) + 8 - (byte ^ 0xFF).bit_length()
            start = (low >> 3) + 1
            full = CHUNK_BYTES - start - len(chunk[start:].lstrip(_FULL))
            offset = ((offset >> 3) + 1 + full) << 3

    def load(self, index: int, data: bytes) -> None:
        """Merge a chunk as the store has it (shorter than 4 KiB = the rest is clear)."""
        chunk = self.chunks.get(index)
        padded = data.ljust(CHUNK_BYTES, b"\0")
        if padded == _FULL_CHUNK:
            self.chunks[index] = _FULL_CHUNK
        elif chunk is None:
            self.chunks[index] = bytearray(padded)
        else:
            merged = int.from_bytes(chunk, "big") | int.from_bytes(padded, "big")
            chunk[:] = merged.to_bytes(CHUNK_BYTES, "big")

    def drop_below(self, offset: int) -> list[int]:
        """Remove the chunks that are wholly below `offset`; returns their indices."""
        dead = sorted(index for index in self.chunks if (index + 1) << CHUNK_SHIFT <= offset)
        for index in dead:
            del self.chunks[index]
        return dead

    def minus(self, other: ChunkedBitmap, start: int) -> list[int]:
        """Offsets at or above `start` that are marked here and not there, in order."""
        missing = []
        for index in sorted(self.chunks):
            there = other.chunks.get(index)
            bits = int.from_bytes(self.chunks[index], "big")
            if there is not None:
                bits &= ~int.from_bytes(there, "big")
            end = (index + 1) << CHUNK_SHIFT
            while bits:
                top = bits.bit_length()
                missing.append(end - top)
                bits ^= 1 << (top - 1)
        return [offset for offset in missing if offset >= start]

    def clear(self) -> None:
        self.chunks.clear()

    def ranges(self, start: int) -> Iterator[tuple[int, int]]:
        """Marked ranges [a, b) at or above `start`, in order."""
        for index in sorted(self.chunks):
            base = index << CHUNK_SHIFT
            position = max(base, start)
            while position < base + CHUNK_OFFSETS:
                first = self._first_set(position, base + CHUNK_OFFSETS)
                if first is None:
                    break
                end = self.first_clear(first)
                yield first, end
                if end > base + CHUNK_OFFSETS:
                    start = end
                    break
                position = end

    def _first_set(self, offset: int, end: int) -> int | None:
        chunk = self.chunks[offset >> CHUNK_SHIFT]
        low = offset & _MASK
        byte = chunk[low >> 3] & (0xFF >> (low & 7))
        if byte:
            return (offset & ~7) + 8 - byte.bit_length()
        start = (low >> 3) + 1
        rest = chunk[start:]
        skipped = len(rest) - len(rest.lstrip(b"\0"))
        if skipped == len(rest):
            return None
        found = start + skipped
        result = (offset & ~_MASK) + (found << 3) + 8 - chunk[found].bit_length()
        return result if result < end else None

    def count(self) -> int:
        """How many offsets are marked."""
        return sum(int.from_bytes(chunk, "big").bit_count() for chunk in self.chunks.values())

    def count_between(self, start: int, end: int) -> int:
        """How many offsets of [start, end) are marked; O(chunks)."""
        marked = 0
        for index, chunk in self.chunks.items():
            base = index << CHUNK_SHIFT
            low, high = max(start - base, 0), min(end - base, CHUNK_OFFSETS)
            if low >= high:
                continue
            if chunk is _FULL_CHUNK:
                marked += high - low
            else:
                bits = int.from_bytes(chunk, "big") >> (CHUNK_OFFSETS - high)
                marked += (bits & ((1 << (high - low)) - 1)).bit_count()
        return marked

    def highest(self) -> int | None:
        for index in sorted(self.chunks, reverse=True):
            stripped = self.chunks[index].rstrip(b"\0")
            if stripped:
                last = stripped[-1]
                lowest_bit = (last & -last).bit_length() - 1
                return (index << CHUNK_SHIFT) + (len(stripped) << 3) - 1 - lowest_bit
        return None
