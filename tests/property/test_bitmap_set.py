"""The chunked bitmap is a set of numbers, whatever is done to it."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ackd.core.bitmap import CHUNK_BYTES, CHUNK_OFFSETS, ChunkedBitmap

# Offsets near the borders of bytes and chunks, where mistakes live.
NEAR = st.builds(
    lambda chunk, byte, bit: max(chunk * CHUNK_OFFSETS + byte * 8 + bit, 0),
    st.integers(0, 3),
    st.sampled_from([-2, -1, 0, 1, 2, 500]),
    st.integers(-1, 8),
)


class BitmapMachine(RuleBasedStateMachine):
    """Against Python's set."""

    def __init__(self) -> None:
        super().__init__()
        self.bitmap = ChunkedBitmap()
        self.model: set[int] = set()

    @rule(offset=NEAR)
    def add(self, offset: int) -> None:
        self.bitmap.add(offset)
        self.model.add(offset)

    @rule(start=NEAR, length=st.sampled_from([0, 1, 7, 8, 9, 64, 1000, 2 * CHUNK_OFFSETS + 3]))
    def add_range(self, start: int, length: int) -> None:
        self.bitmap.add_range(start, start + length)
        self.model.update(range(start, start + length))

    @rule(offset=NEAR)
    def drop_below(self, offset: int) -> None:
        dropped = self.bitmap.drop_below(offset)
        assert dropped == sorted(set(dropped))
        gone = offset // CHUNK_OFFSETS * CHUNK_OFFSETS
        self.model = {each for each in self.model if each >= gone}

    @rule(index=st.integers(0, 3), data=st.binary(max_size=4), at=st.sampled_from([0, 1, 4092]))
    def load(self, index: int, data: bytes, at: int) -> None:
        self.bitmap.load(index, (b"\0" * at + data)[:CHUNK_BYTES])
        bits = int.from_bytes(data, "big")
        for place in range(len(data) * 8):
            if bits >> (len(data) * 8 - 1 - place) & 1:
                self.model.add(index * CHUNK_OFFSETS + at * 8 + place)

    @rule(offset=NEAR)
    def first_clear(self, offset: int) -> None:
        expected = offset
        while expected in self.model:
            expected += 1
        assert self.bitmap.first_clear(offset) == expected

    @rule(offset=NEAR)
    def contains(self, offset: int) -> None:
        assert (offset in self.bitmap) == (offset in self.model)

    @rule(start=NEAR)
    def ranges(self, start: int) -> None:
        expected: list[tuple[int, int]] = []
        for offset in sorted(each for each in self.model if each >= start):
            if expected and expected[-1][1] == offset:
                expected[-1] = (expected[-1][0], offset + 1)
            else:
                expected.append((offset, offset + 1))
        assert list(self.bitmap.ranges(start)) == expected

    @rule(start=NEAR, length=st.sampled_from([1, 2, 9, 500, CHUNK_OFFSETS + 1]))
    def empty(self, start: int, length: int) -> None:
        """Never says so of a range with a mark; says so when the bytes around it have none."""
        end = start + length
        if self.bitmap.empty(start, end):
            assert not any(each in self.model for each in range(start, end))
        elif length <= CHUNK_OFFSETS:
            around = range(start // 8 * 8, (end + 7) // 8 * 8)
            assert any(each in self.model for each in around)

    @rule(start=NEAR, end=NEAR)
    def count_between(self, start: int, end: int) -> None:
        expected = sum(start <= each < end for each in self.model)
        assert self.bitmap.count_between(start, end) == expected

    @rule(others=st.frozensets(NEAR, max_size=5), start=NEAR)
    def minus(self, others: frozenset[int], start: int) -> None:
        other = ChunkedBitmap()
        for offset in others:
            other.add(offset)
        expected = sorted(each for each in self.model - others if each >= start)
        assert self.bitmap.minus(other, start) == expected

    @invariant()
    def same_size(self) -> None:
        assert self.bitmap.count() == len(self.model)
        assert self.bitmap.highest() == max(self.model, default=None)


TestBitmap = BitmapMachine.TestCase
