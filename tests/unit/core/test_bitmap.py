"""The bitmap's edges: bytes, chunks, and the numbering that the store shares."""

from __future__ import annotations

from ackd.core.bitmap import CHUNK_BYTES, CHUNK_OFFSETS, ChunkedBitmap


def bitmap(*offsets: int) -> ChunkedBitmap:
    made = ChunkedBitmap()
    for offset in offsets:
        made.add(offset)
    return made


def test_bits_are_numbered_as_setbit_numbers_them() -> None:
    assert bitmap(0).chunks[0][0] == 0x80
    assert bitmap(7).chunks[0][0] == 0x01
    assert bitmap(8).chunks[0][1] == 0x80


def test_first_clear_passes_over_whole_chunks() -> None:
    made = ChunkedBitmap()
    made.add_range(3, 2 * CHUNK_OFFSETS + 9)
    assert made.first_clear(0) == 0
    assert made.first_clear(3) == 2 * CHUNK_OFFSETS + 9


def test_a_range_over_a_chunk_border_is_one_range() -> None:
    made = ChunkedBitmap()
    made.add_range(CHUNK_OFFSETS - 3, CHUNK_OFFSETS + 3)
    made.add(3 * CHUNK_OFFSETS)
    assert list(made.ranges(0)) == [
        (CHUNK_OFFSETS - 3, CHUNK_OFFSETS + 3),
        (3 * CHUNK_OFFSETS, 3 * CHUNK_OFFSETS + 1),
    ]
    assert next(made.ranges(CHUNK_OFFSETS + 1)) == (CHUNK_OFFSETS + 1, CHUNK_OFFSETS + 3)


def test_a_wide_gap_costs_its_chunks_and_no_more() -> None:
    made = ChunkedBitmap()
    made.add_range(1, 10 * CHUNK_OFFSETS)
    assert len(made.chunks) == 10
    assert all(len(chunk) == CHUNK_BYTES for chunk in made.chunks.values())
    assert made.count() == 10 * CHUNK_OFFSETS - 1


def test_a_short_chunk_from_the_store_is_filled_with_clear_bits() -> None:
    made = bitmap(100)
    made.load(0, b"\x80")
    made.load(1, b"\x01")
    assert list(made.ranges(0)) == [(0, 1), (100, 101), (CHUNK_OFFSETS + 7, CHUNK_OFFSETS + 8)]


def test_only_whole_chunks_are_dropped() -> None:
    made = bitmap(1, CHUNK_OFFSETS)
    assert made.drop_below(CHUNK_OFFSETS - 1) == []
    assert made.drop_below(CHUNK_OFFSETS) == [0]
    assert 1 not in made
    assert CHUNK_OFFSETS in made


def test_highest() -> None:
    assert ChunkedBitmap().highest() is None
    assert bitmap(5, 6, 70_001).highest() == 70_001
