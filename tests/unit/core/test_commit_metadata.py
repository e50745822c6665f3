"""Commit metadata: marker first, then as many ranges as fit; foreign ones mean nothing (R8)."""

from __future__ import annotations

import pytest

from ackd.core.commit_metadata import decode, encode

TOPIC_ID = b"\x0a" * 16


def text(*, ranges: tuple[tuple[int, int], ...] = (), chars_max: int = 4095) -> str:
    return encode("kafka-1", TOPIC_ID, 3, 100, 77, ranges, chars_max)


def test_what_was_written_is_read() -> None:
    read = decode(text(ranges=((101, 105), (200, 1_000_000))))
    assert read is not None
    assert (read.epoch, read.base, read.version) == (3, 100, 77)
    assert read.ranges == ((101, 105), (200, 1_000_000))
    assert read.fits("kafka-1", TOPIC_ID, 100)


@pytest.mark.parametrize(
    ("cluster", "topic_id", "offset"),
    [("kafka-2", TOPIC_ID, 100), ("kafka-1", b"\x0b" * 16, 100), ("kafka-1", TOPIC_ID, 99)],
)
def test_ranges_of_another_place_do_not_fit(cluster: str, topic_id: bytes, offset: int) -> None:
    """R8: a mirror copies metadata beside a translated offset; using it would lose messages."""
    read = decode(text(ranges=((101, 105),)))
    assert read is not None
    assert not read.fits(cluster, topic_id, offset)


def test_a_small_limit_keeps_the_marker_and_the_first_ranges() -> None:
    """R8-S3: without the marker, our own commit would look like an operator's reset."""
    marker = len(text())
    ranges = tuple((n * 10, n * 10 + 5) for n in range(11, 1000))
    for chars_max in (marker, marker + 1, marker + 5, marker + 60):
        made = text(ranges=ranges, chars_max=chars_max)
        assert len(made) <= chars_max
        read = decode(made)
        assert read is not None
        assert read.ranges == ranges[: len(read.ranges)]


def test_no_room_for_the_marker_is_an_error() -> None:
    with pytest.raises(ValueError, match="marker"):
        text(chars_max=len(text()) - 1)


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "hello",
        "ackd2 a b c d e",
        "ackd1 a b c d",
        "ackd1 a b # d e",
        text() + "|1.x.y",
        text() + "|-",
        text() + "|-5.a",
        text() + "|5.-a",
        text() + "|5.0",
        text() + "|1_0.5",
        text() + "|5.\u0664",
        text() + "|5.zzzzzzzzzzzz",
        text() + f"|{'z' * 5_000}.1",
        "ackd1 a b 1 -1 1",
        "ackd1 a b 1 zzzzzzzzzzzz 1",
        "ackd1 a b -1 1 1",
    ],
)
def test_what_ackd_did_not_write_is_nobodys(metadata: str) -> None:
    assert decode(metadata) is None
