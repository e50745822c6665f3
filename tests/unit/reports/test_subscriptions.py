"""Rows of subscriptions: what matters first, since when, and how it went before."""

from typing import Any

from ackd_reports.courses import course_of
from ackd_reports.evidence import Evidence, VerdictBounds
from ackd_reports.frames.figures import Figures
from ackd_reports.frames.lives import COUNTS
from ackd_reports.model import Report, report
from ackd_reports.targets import Target
from ackd_reports.words import BUCKET_US, HOUR_US, MICRO

START_US = 1_790_000_000 * MICRO // HOUR_US * HOUR_US
TARGET = Target("all", "delivered", 0.9)


def bucket(topic: str, number: int, good: int, bad: int) -> dict[str, Any]:
    """Five minutes of a subscription."""
    row: dict[str, Any] = dict.fromkeys((*COUNTS, *(f"retry_{n}" for n in range(1, 6))), 0)
    names = {"system": "kafka", "cluster": "c", "topic": topic, "grp": "g", "application": "a"}
    row |= {"messages": (good + bad) * MICRO, "dead": bad * MICRO, "rows": good + bad}
    at = START_US + number * BUCKET_US
    return {**names, **row, "good_0": good * MICRO, "bad_0": bad * MICRO, "bucket_us": at}


def figures(buckets: list[dict[str, Any]], start_us: int = START_US) -> Figures:
    """Of an hour, with nothing but counts."""
    nothing: list[Any] = [[] for _ in range(14)]
    return Figures(start_us, start_us + HOUR_US, buckets, *nothing)


def of(
    buckets: list[dict[str, Any]], before: list[dict[str, Any]], seen: list[dict[str, Any]]
) -> Report:
    """A report of them."""
    now = figures(buckets)
    course = course_of(buckets, (TARGET,), now.until_us)
    evidence = Evidence(seen, [], 1, [], now.until_us)
    old = figures(before, START_US - HOUR_US)
    return report(now, old, (TARGET,), course, evidence, VerdictBounds())


def seen(topic: str) -> dict[str, Any]:
    """Somebody was heard of to the end."""
    row = bucket(topic, 0, 1, 0)
    times = {"first_us": START_US, "last_us": START_US + HOUR_US, "gap_us": BUCKET_US}
    return {**row, **times, "buckets": 12}


def test_what_is_breached_comes_first_with_its_begin_and_trend() -> None:
    """Of two breached ones that with more of its budget spent, however few its messages are."""
    buckets = [bucket("busy", n, 1_000, 0) for n in range(12)]
    buckets += [bucket("late", n, 10, 0 if n < 6 else 10) for n in range(12)]
    buckets += [bucket("worst", n, 1, 9) for n in range(12)]
    before = [bucket("late", n - 12, 10, 0) for n in range(12)]
    topics = ("busy", "late", "worst")
    rows = of(buckets, before, [seen(topic) for topic in topics])["subscriptions"]
    assert [each["topic"] for each in rows] == ["worst", "late", "busy"]
    late = rows[1]["promises"][0]
    assert (late["state"], late["bad"], late["share_before"]) == ("broken", 60, 1.0)
    # 18 of 180 may be bad: with the second bad slice of ten that is gone.
    assert late["breached_since"] == rows[1]["series"][7]["at"]
    assert late["burn"]["1 h"] > late["burn"]["6 h"] > 1
    assert rows[2]["promises"][0]["breached_since"] is None


def test_a_breach_is_a_row_for_machines() -> None:
    found = of([bucket("late", 0, 1, 9)], [], [seen("late")])
    rows = [(each["name"], each["kind"], each["value"]) for each in found["breaches"]]
    assert rows[0] == ("all", "objective", 0.1)
    assert found["breaches"][0]["bound"] == 0.9


def test_a_drawing_has_every_slice_and_a_row_only_those_with_something() -> None:
    found = of([bucket("late", 3, 1, 0)], [], [seen("late")])
    assert len(found["subscriptions"][0]["series"]) == 1
    assert found["slice_s"] == 300
