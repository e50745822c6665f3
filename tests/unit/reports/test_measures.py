"""Measures on counts: compliance, budgets, burn rates; each figure worked out by hand."""

import pytest

from ackd_reports import measures
from ackd_reports.words import BUCKET_US, DAY_US, HOUR_US, MICRO

MONTH_US = 30 * DAY_US


def test_exactly_the_objective_is_kept() -> None:
    """99 of 100 meets 0.99 although 0.99 is no binary fraction."""
    for hundred in (100, 100 * MICRO, 100_000_000 * MICRO):
        found = measures.compliance(hundred * 99 // 100, hundred // 100, 0.99)
        assert found.state == measures.KEPT
        assert found.spent == pytest.approx(1.0)


def test_one_more_is_broken() -> None:
    found = measures.compliance(9_899, 101, 0.99)
    assert found.state == measures.BROKEN
    assert found.share == pytest.approx(0.9899)
    assert found.budget == pytest.approx(100)
    assert found.spent == pytest.approx(1.01)


def test_without_data_nothing_is_kept_or_broken() -> None:
    found = measures.compliance(0, 0, 0.99)
    assert (found.state, found.share, found.spent) == (measures.NO_DATA, None, None)


def test_bounds_are_those_of_the_workbook() -> None:
    """14.4, 6, 3 and 1 for a window of 30 days."""
    bounds = [measures.bound(window, MONTH_US) for window in measures.BURN_WINDOWS]
    assert bounds == pytest.approx([14.4, 6, 3, 1])


def test_burn_rate_is_over_the_stretch_alone() -> None:
    """An hour is twelve buckets: the one before does not count."""
    series = [(n * BUCKET_US, 0, 100) for n in range(1)]
    series += [(n * BUCKET_US, 98, 2) for n in range(1, 13)]
    sums = measures.Sums(series)
    assert sums.burn(12 * BUCKET_US, HOUR_US, 0.99).rate == pytest.approx(2.0)
    assert sums.between(12 * BUCKET_US - HOUR_US, 12 * BUCKET_US) == (12 * 98, 24)


def test_an_alert_begins_and_ends_with_the_trouble() -> None:
    """Two hours of health, half an hour in which all is bad, two hours of health."""
    series = [(n * BUCKET_US, 100 * MICRO, 0) for n in range(24)]
    series += [(n * BUCKET_US, 0, 100 * MICRO) for n in range(24, 30)]
    series += [(n * BUCKET_US, 100 * MICRO, 0) for n in range(30, 54)]
    found = [each for each in alerts(series) if each.long_us == HOUR_US]
    assert len(found) == 1
    # 14.4 % of the hour must be bad: two of twelve buckets. The short window ends it.
    assert found[0].since_us == 25 * BUCKET_US
    assert found[0].until_us == 30 * BUCKET_US
    assert found[0].severity == "page"
    assert found[0].peak == pytest.approx(50.0)


def test_health_alerts_nobody() -> None:
    series = [(n * BUCKET_US, 1_000 * MICRO, 1 * MICRO) for n in range(900)]
    assert alerts(series) == []


def test_what_lies_before_fills_the_windows_and_is_not_told() -> None:
    """Three days of health, then an hour in which 5 % is bad: over three days that is no trend, and
    a report that saw the hour alone would raise a ticket.
    """
    healthy = [(n * BUCKET_US, 100 * MICRO, 0) for n in range(72 * 12)]
    hour = [(n * BUCKET_US, 95 * MICRO, 5 * MICRO) for n in range(72 * 12, 73 * 12)]
    since = hour[0][0]
    assert alerts([*healthy, *hour], since) == []
    assert {each.severity for each in alerts(hour, since)} == {"ticket"}
    outage = [(n * BUCKET_US, 0, 100 * MICRO) for n in range(12)]
    assert alerts([*outage, *healthy[400:]], since - 100 * BUCKET_US) == []


@pytest.mark.parametrize(("good", "bad"), [(60, 1), (60, 8), (99_999, 1)])
def test_a_few_messages_alert_nobody(good: int, bad: int) -> None:
    """Fewer than 100, or one bad one however many there are."""
    assert alerts([(0, good * MICRO, bad * MICRO)], objective=0.999_999) == []


def alerts(
    series: measures.Series, since_us: int = -1, objective: float = 0.99
) -> list[measures.Alert]:
    """Of a promise over 30 days, with at least 100 messages in a window."""
    return measures.alerts(series, objective, MONTH_US, 100, since_us)


def test_remaining_budget_falls_to_what_is_left() -> None:
    series = [(0, 98, 2), (BUCKET_US, 100, 0), (2 * BUCKET_US, 99, 1)]
    left = measures.remaining(series, 0.98)
    assert [at for at, _ in left] == [0, BUCKET_US, 2 * BUCKET_US]
    assert [share for _, share in left] == pytest.approx([4 / 6, 4 / 6, 3 / 6])
