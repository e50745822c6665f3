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
    assert sums.burn(12 * BUCKET_US, HOUR_US, 0.99) == pytest.approx(2.0)
    assert sums.between(12 * BUCKET_US - HOUR_US, 12 * BUCKET_US) == (12 * 98, 24)


def test_an_alert_begins_and_ends_with_the_trouble() -> None:
    """Two hours of health, half an hour in which all is bad, two hours of health."""
    series = [(n * BUCKET_US, 100, 0) for n in range(24)]
    series += [(n * BUCKET_US, 0, 100) for n in range(24, 30)]
    series += [(n * BUCKET_US, 100, 0) for n in range(30, 54)]
    found = [each for each in measures.alerts(series, 0.99, MONTH_US) if each.long_us == HOUR_US]
    assert len(found) == 1
    # 14.4 % of the hour must be bad: two of twelve buckets. The short window ends it.
    assert found[0].since_us == 25 * BUCKET_US
    assert found[0].until_us == 30 * BUCKET_US
    assert found[0].severity == "page"
    assert found[0].peak == pytest.approx(50.0)


def test_health_alerts_nobody() -> None:
    series = [(n * BUCKET_US, 1_000, 1) for n in range(900)]
    assert measures.alerts(series, 0.99, MONTH_US) == []


def test_remaining_budget_falls_to_what_is_left() -> None:
    series = [(0, 98, 2), (BUCKET_US, 100, 0), (2 * BUCKET_US, 99, 1)]
    left = measures.remaining(series, 0.98)
    assert [at for at, _ in left] == [0, BUCKET_US, 2 * BUCKET_US]
    assert [share for _, share in left] == pytest.approx([4 / 6, 4 / 6, 3 / 6])
