"""Hours that stand out, hours that only look like it, and incidents made of them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd_reports.anomalies import incidents, outstanding
from ackd_reports.words import HOUR_US

USUAL = [(hour, 10.0 + hour % 3) for hour in range(24)]


def test_one_hour_stands_out() -> None:
    found = outstanding([*USUAL, (24, 60.0)], 5.0)
    assert [each.at_us for each in found] == [24]
    assert (found[0].value, found[0].usual, found[0].most) == (60.0, 11.0, 12.0)


def test_a_bad_hour_hides_no_other() -> None:
    """A mean and its deviation would be moved by the first."""
    found = outstanding([*USUAL, (24, 60.0), (25, 100_000.0)], 5.0)
    assert [each.at_us for each in found] == [24, 25]


@given(st.lists(st.floats(0, 1e6), min_size=6, max_size=60), st.floats(0, 100))
def test_what_stands_out_is_above_all_others(values: list[float], least: float) -> None:
    """So no sentence says that an hour is unusual and gives a range that it lies in."""
    found = outstanding(list(enumerate(values)), least)
    named = {each.at_us for each in found}
    others = [value for at, value in enumerate(values) if at not in named]
    for each in found:
        assert all(other < each.value for other in others)
        assert each.most == max(others, default=each.usual)


def test_small_numbers_are_no_anomaly() -> None:
    assert outstanding([(hour, 0.0) for hour in range(24)] + [(24, 2.0)], 5.0) == []


def test_the_usual_is_no_anomaly() -> None:
    assert outstanding(USUAL, 5.0) == []


def test_a_few_hours_know_nothing_usual() -> None:
    assert outstanding([(0, 1.0), (1, 1.0), (2, 100.0)], 5.0) == []


def hour(number: int, **changed: Any) -> dict[str, Any]:
    """An hour of a subscription as the report has it."""
    counts = dict.fromkeys(("retries", "expires", "dead", "send_backs", "lates"), 0)
    measured = {"n": changed.pop("n", 1_000), "p99_ms": changed.pop("p99_ms", 1_500.0)}
    durations = {"wait": {"n": 0, "p99_ms": None}, "time_to_ack": measured}
    names = {"system": "kafka", "cluster": "c", "topic": "orders", "group": "g"}
    return {**names, **counts, "hour_us": number * HOUR_US, "durations": durations, **changed}


def test_one_incident_is_one_line() -> None:
    """Three hours with one of calm in between, and three measures; a day later another one."""
    bad: dict[int, dict[str, Any]] = {
        3: {"retries": 80, "p99_ms": 26_700.0},
        4: {"retries": 500, "dead": 12},
        6: {"dead": 9},
    }
    bad[30] = {"retries": 90}
    found = incidents([hour(number, **bad.get(number, {})) for number in range(36)])
    assert [(each["since"][:13], each["until"][:13]) for each in found] == [
        ("1970-01-01T03", "1970-01-01T07"),
        ("1970-01-02T06", "1970-01-02T07"),
    ]
    told = found[0]["sentence"]
    assert "500 retries (usually 0, at most 0 in other hours)" in told
    assert "12 dead letters" in told
    assert "26.7 s p99 of published to ack (usually 1.5 s, at most 1.5 s in other hours)" in told


@pytest.mark.parametrize(("measured", "lines"), [(99, 0), (100, 1)])
def test_the_longest_of_a_few_messages_is_no_percentile(measured: int, lines: int) -> None:
    slow = hour(9, n=measured, p99_ms=60_000.0)
    assert len(incidents([*[hour(number) for number in range(9)], slow])) == lines
