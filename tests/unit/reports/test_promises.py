"""Promises over their windows: what a report says of them whatever its own period is."""

from typing import Any

import pytest

from ackd_reports.courses import PromiseCourse, course_of, reaches_back_to
from ackd_reports.measures import BROKEN, BURN_US, KEPT, NO_DATA
from ackd_reports.promises import attended, promise
from ackd_reports.targets import Target
from ackd_reports.windows import Rolling, aligned
from ackd_reports.words import BUCKET_US, DAY_US, HOUR_US, MICRO

END_US = 1_790_000_000 * MICRO // DAY_US * DAY_US + 20 * HOUR_US
NAMES = {"system": "kafka", "cluster": "c", "topic": "orders", "grp": "g", "application": "a"}
TARGET = Target("in time", "time_to_ack", 0.99, MICRO)


def row(ago_us: int, good: int, bad: int, **named: str) -> dict[str, Any]:
    """Five minutes of a stream, so long before the end."""
    at = (END_US - ago_us) // BUCKET_US * BUCKET_US
    sides = {"good_0": good * MICRO, "bad_0": bad * MICRO}
    return {**NAMES, **named, "bucket_us": at, **sides}


LAKE = [
    *[row(days * DAY_US, 1_000, 0) for days in range(1, 40)],
    *[row(n * HOUR_US, 90, 10) for n in range(1, 5)],
]
"""Weeks of a thousand good messages a day, and four hours that are not."""


def found(rows: list[dict[str, Any]], target: Target = TARGET) -> dict[str, Any]:
    """The promise in a lake with these rows, of which the period has the last four hours."""
    now = [each for each in rows if each["bucket_us"] >= END_US - 4 * HOUR_US]
    return promise(0, target, course_of(rows, (target,), END_US), now, None, END_US)


def test_the_window_decides_and_not_the_period() -> None:
    """The four hours alone would be broken (90 % of 99 %)."""
    told = found(LAKE)
    assert (told["state"], told["good"], told["bad"]) == (KEPT, 30_360, 40)
    assert told["spent"] == pytest.approx(40 / 304)
    assert told["period"]["share"] == 0.9


def test_a_broken_window_is_broken_on_a_good_day() -> None:
    lake = [row(3 * DAY_US, 500, 500), row(HOUR_US, 400, 0)]
    told = found(lake)
    assert (told["state"], told["period"]["share"]) == (BROKEN, 1.0)


def test_burn_rates_look_back_past_the_period() -> None:
    """Over three days 40 of 3,400 are bad, whatever the report shows."""
    rates = {each["long"]: each["burn_long"] for each in found(LAKE)["burning"]}
    assert rates["3 d"] == pytest.approx(100 * 40 / 3_400, abs=1e-3)
    assert rates["1 h"] == pytest.approx(10)
    cut = [each for each in LAKE if each["bucket_us"] >= END_US - 4 * HOUR_US]
    assert {each["burn_long"] for each in found(cut)["burning"]} == {10}


def test_a_calendar_window_forgets_the_day_before() -> None:
    """At 20:00 UTC the day in Tokyo is five hours old."""
    day = Target("t", "delivered", 0.99, window=aligned("1d", "2026-01-01 00:00:00", "Asia/Tokyo"))
    lake = [row(6 * HOUR_US, 0, 100), row(4 * HOUR_US, 100, 0)]
    told = found(lake, day)
    assert (told["state"], told["good"], told["bad"]) == (KEPT, 100, 0)
    assert told["window"]["since"].endswith("T15:00:00.000Z")
    assert told["window"]["text"] == "calendar day (Asia/Tokyo)"


def test_each_subscription_is_told_apart() -> None:
    lake = [row(HOUR_US, 99, 1), row(HOUR_US, 5, 5, grp="slow"), row(HOUR_US, 0, 0, grp="other")]
    told = found(lake)["subscriptions"]
    assert [(each["group"], each["bad"], each["state"]) for each in told] == [
        ("g", 1, KEPT),
        ("slow", 5, BROKEN),
    ]


def test_windows_reach_back_as_far_as_burn_rates_at_their_begin() -> None:
    short = Target("s", "delivered", 0.9, window=Rolling(DAY_US))
    assert reaches_back_to([short, TARGET], END_US) == END_US - 30 * DAY_US - BURN_US
    assert found([])["state"] == NO_DATA


def seen(topic: str, grp: str = "g") -> dict[str, Any]:
    """A subscription of which something was heard."""
    return {"system": "kafka", "cluster": "c", "topic": topic, "grp": grp, "last_us": END_US}


def only(**filters: str) -> Target:
    """A target with filters."""
    return Target("t", "delivered", 0.9, only=tuple(filters.items()))


SILENT = {"system": "kafka", "cluster": "c", "topic": "orders", "group": "g", "last": "noon"}


@pytest.mark.parametrize(
    ("target", "silent", "state", "wanted", "why"),
    [
        (only(topic="ordrs"), [], NO_DATA, NO_DATA, "topic ordrs (is it orders?)"),
        (only(topic="orders", group="x"), [], NO_DATA, NO_DATA, "heard of group x"),
        (only(topic="orders"), [SILENT], KEPT, NO_DATA, "silent since noon"),
        (only(topic="orders"), [SILENT], BROKEN, BROKEN, "silent since noon"),
        (only(), [SILENT], KEPT, KEPT, None),
        (only(topic="mail"), [], NO_DATA, NO_DATA, "no message in its window"),
        (only(topic="mail", application="any"), [], KEPT, KEPT, None),
    ],
)
def test_of_whom_nothing_is_heard_there_is_no_data(
    target: Target, silent: list[dict[str, str]], state: str, wanted: str, why: str | None
) -> None:
    told = attended(state, target, [seen("orders"), seen("mail")], silent)
    assert told["state"] == wanted
    assert (told["why"] is None) if why is None else (why in told["why"])


def test_a_course_is_the_same_by_bucket_and_by_subscription() -> None:
    told: PromiseCourse = course_of(LAKE, (TARGET,), END_US)
    assert sum(each["bad_0"] for each in told.buckets) == 40 * MICRO
    assert [each["bad_0"] for each in told.subscriptions] == [40 * MICRO]
