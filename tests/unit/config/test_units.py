"""Durations, sizes, instants: what is taken, what is refused, and that printing loses nothing."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.config.units import (
    format_duration,
    format_size,
    instant_ms,
    parse_duration,
    parse_instant,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0s", 0),
        ("500ms", 500),
        ("10s", 10_000),
        ("1m30s", 90_000),
        ("2h", 7_200_000),
        ("1d1ms", 86_400_001),
        ("90m", 5_400_000),
    ],
)
def test_duration_is_read(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "s",
        "10 s",
        "1.5s",
        "-1s",
        "30s1m",
        "1s1s",
        "10x",
        "1m 30s",
        "5S",
        "\u0661s",
        "9" * 40 + "s",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**15))
def test_duration_survives_printing(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("1024B", 1024),
        ("64 KiB", 65_536),
        ("16MiB", 1 << 24),
        ("1GiB", 1 << 30),
        ("2MB", 2_000_000),
    ],
)
def test_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "16", "MiB", "1.5MiB", "-1B", "16mib", "16 M", "1MiB1KiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@given(st.integers(0, 1 << 59))
def test_size_survives_printing(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_instant_needs_an_offset() -> None:
    """Without one the start of a subscription would depend on the machine's time zone."""
    assert parse_instant("2026-01-31T08:00:00Z") == 1_769_846_400_000
    assert parse_instant("2026-01-31T09:00:00.250+01:00") == 1_769_846_400_250
    with pytest.raises(ValueError, match="offset"):
        parse_instant("2026-01-31T08:00:00")
    with pytest.raises(ValueError, match="offset"):
        instant_ms(datetime(2026, 1, 31))  # noqa: DTZ001  the case
    with pytest.raises(ValueError, match="date-time"):
        parse_instant("yesterday")
