"""What a report rests on, and the word that it comes to; each figure worked out by hand."""

from typing import Any

import pytest

from ackd_reports.evidence import Evidence, completeness, freshness, silent, verdict
from ackd_reports.measures import BROKEN, INCOMPLETE, KEPT, NO_DATA
from ackd_reports.words import BUCKET_US, DAY_US, HOUR_US, MICRO

END_US = 100 * DAY_US
COUNTS = ("written_first", "written_last", "dropped_last")


def run(instance: str = "a", boot: str = "1", **changed: Any) -> dict[str, Any]:
    """A run that began in the period; all of its 1,000 spans are there."""
    told = {"written_first": 10, "written_last": 1_000, "dropped_last": 0, "dropped_before": None}
    known = {"started": 1, "stopped": 0, "spans": 1_000, "bad": 0}
    times = {"first_us": END_US - DAY_US, "last_us": END_US}
    return {"instance": instance, "boot": boot, **told, **known, **times, **changed}


def complete(*runs: dict[str, Any], files: int = 10, cut: int = 0) -> dict[str, Any]:
    """Completeness of so many runs."""
    names = [f"f{number}" for number in range(cut)]
    return completeness(Evidence([], list(runs), files, names, END_US), 0.99, END_US)


def seen(quiet_us: int, gap_us: int, buckets: int = 100) -> dict[str, Any]:
    """A subscription's signs of life."""
    last = END_US - quiet_us
    names = {"system": "kafka", "cluster": "c", "topic": "t", "grp": "g"}
    return {**names, "first_us": 0, "last_us": last, "gap_us": gap_us, "buckets": buckets}


def test_everything_is_there() -> None:
    assert complete(run(), run("b"))["share"] == 1


def test_more_than_was_told_is_no_more_than_all() -> None:
    """Files that came twice, and spans that were written after the last count."""
    assert complete(run(spans=2_030))["share"] == 1


def test_a_run_from_before_the_period_counts_from_its_first_word() -> None:
    counts = {"dropped_before": 7, "dropped_last": 7, "written_first": 5_000}
    counts |= {"written_last": 6_000, "spans": 900}
    for started in (0, 1):
        found = complete({**run(started=started), **counts})
        assert (found["share"], found["spans_missing"], found["spans_dropped"]) == (0.9, 100, 0)


def test_what_a_kill_took_with_the_start_of_its_run_is_lost() -> None:
    """The next run tells it, in one count: 60 written, which are there, and 40 that are gone."""
    found = complete(run(started=0, written_first=60, written_last=60, spans=60, dropped_last=40))
    assert (found["share"], found["spans_dropped"], found["spans_missing"]) == (0.6, 40, 0)


def test_dropped_missing_and_quarantined_add_up() -> None:
    found = complete(run(spans=980, dropped_last=40, bad=10))
    assert (found["spans_missing"], found["spans_dropped"], found["spans_bad"]) == (20, 40, 10)
    assert found["share"] == pytest.approx(1 - 70 / 1_040)


def test_without_any_count_each_cut_file_is_lost() -> None:
    nothing = {**run(), **dict.fromkeys(COUNTS)}
    assert complete(nothing)["share"] == 1
    assert complete(nothing, cut=1)["share"] == 0.9
    assert complete(files=72, cut=12)["share"] == pytest.approx(60 / 72)
    assert complete()["share"] is None


def test_who_fell_silent_without_a_stop() -> None:
    early = END_US - HOUR_US
    found = complete(
        run("a", last_us=early),
        run("b", stopped=1, last_us=early),
        run("c"),
        run("d", "1", last_us=early),
        run("d", "2", first_us=early),
    )
    assert [each["instance"] for each in found["sidecars_silent"]] == ["a"]


def test_freshness_is_of_before_the_end() -> None:
    def told(last_us: int | None) -> dict[str, Any]:
        return freshness(Evidence([], [], 0, [], last_us), END_US)

    assert told(END_US - 90 * MICRO)["age_s"] == 90
    assert told(END_US + HOUR_US)["age_s"] == 0
    assert told(None) == {"last_event": None, "age_s": None}


@pytest.mark.parametrize(
    ("row", "after_us", "is_silent"),
    [
        # Busy all the time: an hour is the least.
        (seen(59 * 60 * MICRO, BUCKET_US), None, False),
        (seen(61 * 60 * MICRO, BUCKET_US), None, True),
        # It rests every night.
        (seen(20 * HOUR_US, 8 * HOUR_US), None, False),
        (seen(25 * HOUR_US, 8 * HOUR_US), None, True),
        # Nobody knows what is usual for it.
        (seen(20 * HOUR_US, 0, buckets=2), None, False),
        (seen(25 * HOUR_US, 0, buckets=2), None, True),
        # Somebody does.
        (seen(25 * HOUR_US, 0), 7 * DAY_US, False),
        (seen(2 * HOUR_US, 8 * HOUR_US), HOUR_US, True),
        (seen(25 * HOUR_US, 0), 0, False),
    ],
)
def test_silence_is_longer_than_usual(
    row: dict[str, Any], after_us: int | None, *, is_silent: bool
) -> None:
    assert bool(silent([row], END_US, after_us)) is is_silent


@pytest.mark.parametrize(
    ("states", "silent_ones", "share", "wanted"),
    [
        ([KEPT, KEPT], [], 1.0, KEPT),
        ([KEPT, KEPT], [], 0.99, KEPT),
        ([KEPT, KEPT], [], 0.9899, INCOMPLETE),
        ([KEPT, KEPT], [], None, KEPT),
        ([KEPT, NO_DATA], [], 1.0, NO_DATA),
        ([KEPT], ["g"], 1.0, NO_DATA),
        ([KEPT, NO_DATA], [], 0.5, NO_DATA),
        ([BROKEN, NO_DATA], ["g"], 0.5, BROKEN),
    ],
)
def test_nothing_is_kept_that_nobody_knows(
    states: list[str], silent_ones: list[str], share: float | None, wanted: str
) -> None:
    assert verdict(states, silent_ones, {"share": share, "bound": 0.99}) == wanted
