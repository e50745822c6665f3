"""Windows: which stretch of time a promise is judged over; each edge worked out by hand."""

from datetime import datetime

import pytest

from ackd_reports.windows import Window, aligned, rolling
from ackd_reports.words import DAY_US, MICRO


def us(text: str) -> int:
    """A moment with its offset, in microseconds."""
    return round(datetime.fromisoformat(text).timestamp()) * MICRO


def around(window: Window, at: str) -> tuple[int, int]:
    """The window that a moment lies in."""
    return window.around(us(at) + 1)


def test_a_rolling_window_ends_now_and_begins_with_a_bucket() -> None:
    since, until = rolling("30d").around(us("2026-11-24T03:27:12+00:00"))
    assert until == us("2026-11-24T03:27:12+00:00")
    assert since == us("2026-10-25T03:25:00+00:00")


@pytest.mark.parametrize(
    ("at", "since", "until"),
    [
        # Local midnight is an hour before that of UTC in winter, two in summer.
        ("2026-03-31T21:59:00+00:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"),
        ("2026-03-31T22:00:00+00:00", "2026-04-01T00:00:00+02:00", "2026-05-01T00:00:00+02:00"),
        ("2026-02-10T00:00:00+00:00", "2026-02-01T00:00:00+01:00", "2026-03-01T00:00:00+01:00"),
    ],
)
def test_a_month_is_that_of_its_time_zone(at: str, since: str, until: str) -> None:
    month = aligned("1M", "2026-01-01 00:00:00", "Europe/Berlin")
    assert around(month, at) == (us(since), us(until))


def test_the_end_of_a_month_stays_the_end() -> None:
    month = aligned("1M", "2026-01-31 00:00:00", "UTC")
    since, until = around(month, "2026-03-10T00:00:00+00:00")
    assert (since, until) == (us("2026-02-28T00:00:00+00:00"), us("2026-03-31T00:00:00+00:00"))


def test_a_day_of_25_hours_is_one_day() -> None:
    day = aligned("1d", "2026-01-01 00:00:00", "Europe/Berlin")
    since, until = around(day, "2026-10-25T12:00:00+01:00")
    assert until - since == DAY_US + DAY_US // 24
    assert since == us("2026-10-25T00:00:00+02:00")


def test_quarters_and_years_count_from_their_start() -> None:
    quarter = aligned("1Q", "2026-02-01 00:00:00", "UTC")
    assert around(quarter, "2027-01-31T23:59:00+00:00") == (
        us("2026-11-01T00:00:00+00:00"),
        us("2027-02-01T00:00:00+00:00"),
    )
    year = aligned("1Y", "2024-02-29 00:00:00", "UTC")
    assert around(year, "2026-06-01T00:00:00+00:00") == (
        us("2026-02-28T00:00:00+00:00"),
        us("2027-02-28T00:00:00+00:00"),
    )


def test_the_moment_that_ends_a_window_is_not_in_it() -> None:
    """A report until midnight is about the day that ends then."""
    day = aligned("1d", "2026-01-01 00:00:00", "UTC")
    midnight = us("2026-05-02T00:00:00+00:00")
    assert day.around(midnight) == (midnight - DAY_US, midnight)


def test_before_its_start_there_is_the_first_window() -> None:
    day = aligned("1d", "2026-01-01 00:00:00", "UTC")
    assert around(day, "2025-06-01T00:00:00+00:00") == (
        us("2026-01-01T00:00:00+00:00"),
        us("2026-01-02T00:00:00+00:00"),
    )


@pytest.mark.parametrize("text", ["", "0d", "30", "d", "1.5h", "-1d", "1D", "30 d", 30, None])
def test_what_is_no_length(text: object) -> None:
    with pytest.raises(ValueError, match="no length of a window"):
        rolling(text)


@pytest.mark.parametrize(
    ("length", "start", "zone", "told"),
    [
        ("7m", "2026-01-01 00:00:00", "UTC", "multiple of 5 minutes"),
        ("1d", "2026-01-01 00:01:00", "UTC", "multiple of 5 minutes"),
        ("1d", "2026-01-01", "UTC", "write 2026-01-01"),
        ("1d", "2026-01-01 00:00:00", "Europe/Nowhere", "no time zone"),
        ("1d", "2026-01-01 00:00:00", "../UTC", "no time zone"),
        ("1d", "2026-01-01 00:00:00", 5, "a name such as"),
    ],
)
def test_what_is_no_calendar(length: str, start: str, zone: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        aligned(length, start, zone)
