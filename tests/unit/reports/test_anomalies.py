"""Hours that stand out, and hours that only look like it."""

from ackd_reports.anomalies import outstanding

USUAL = [(hour, 10.0 + hour % 3) for hour in range(24)]


def test_one_hour_stands_out() -> None:
    found = outstanding([*USUAL, (24, 60.0)], 5.0)
    assert [each.at_us for each in found] == [24]
    assert (found[0].value, found[0].usual) == (60.0, 11.0)
    assert found[0].low <= found[0].usual <= found[0].high


def test_a_bad_hour_hides_no_other() -> None:
    """A mean and its deviation would be moved by the first."""
    found = outstanding([*USUAL, (24, 60.0), (25, 100_000.0)], 5.0)
    assert [each.at_us for each in found] == [24, 25]


def test_small_numbers_are_no_anomaly() -> None:
    assert outstanding([(hour, 0.0) for hour in range(24)] + [(24, 2.0)], 5.0) == []


def test_the_usual_is_no_anomaly() -> None:
    assert outstanding(USUAL, 5.0) == []


def test_a_few_hours_know_nothing_usual() -> None:
    assert outstanding([(0, 1.0), (1, 1.0), (2, 100.0)], 5.0) == []
