"""What `ackd top` makes of the answers: sums, rates, columns, and text that moves no cursor."""

from __future__ import annotations

from typing import Any

import pytest

from ackd.cli.client.endpoint import of_address, of_url
from ackd.cli.figures import UNKNOWN, age, clean, count, rate, until
from ackd.cli.message_lines import message_line
from ackd.errors import ConfigError
from ackd.telemetry.metrics import Metrics
from ackd_top import scrape
from ackd_top.columns import COLUMNS, table, warnings
from ackd_top.subscription_rows import BoardRow, SeenBefore, SubscriptionReport, rows
from ackd_top.words import HISTORY_MAX, History, detail, message_lines, parsed_id, share_cells

Answer = tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]


def test_numbers_fit_their_columns() -> None:
    assert [count(each) for each in (None, 0, 9999, 10_000, 99_960, 123_456, 2_500_000, 1e12)] == [
        "-", "0", "9999", "10.0k", "100k", "123k", "2.5M", "1000G",
    ]  # fmt: skip
    assert [rate(each) for each in (None, 0, 0.04, 3.21, 99.94, 400)] == [
        "-", "0", "0.0", "3.2", "99.9", "400",
    ]  # fmt: skip
    assert [age(each) for each in (None, -1, 0.9, 59, 200, 7500, 90_000)] == [
        "-", "0s", "0s", "59s", "3m20s", "2h5m", "1d1h",
    ]  # fmt: skip
    assert (until(41_000, 0), until(0, 41_000)) == ("in 41s", "41s ago")


def test_what_others_wrote_moves_no_cursor() -> None:
    assert clean("a\x1b[2J\nb\x00") == "a?[2J?b?"
    assert len(clean("x" * 1000)) == 500


@pytest.mark.parametrize("width", [60, 79, 80, 100, 120, 160, 250])
def test_a_row_is_as_wide_as_its_titles_and_fits(width: int) -> None:
    layout = table(width)
    row = BoardRow("n" * 300, "starting", {"lag": 10**9}, oldest_s=10**7, messages=[])
    cells = layout.cells(row)
    assert [len(cell) for cell in cells] == [len(title) for title in layout.titles]
    assert len("".join(cells)) <= max(width, 75)
    if width >= 160:
        assert len(layout.columns) == len(COLUMNS)


def test_eighty_columns_show_what_matters() -> None:
    titles = [title.strip() for title in table(79).titles]
    assert {"lag", "leased", "waiting", "stuck", "dead", "out/s", "ack/s", "fail/s"} <= set(titles)


def exposed() -> str:
    """A scrape of real families."""
    metrics = Metrics()
    for partition, lag in (("0", 5), ("1", 7)):
        metrics.lag.at("s", "t", partition, "false").set(lag)
        metrics.oldest_unfinished.at("s", "t", partition, "false").set(lag * 10)
    metrics.lag.at("s", "ackd.retry.s", "0", "true").set(1000)
    metrics.in_flight.at("s").set(3)
    metrics.deliveries.at("s", "first").inc(10)
    metrics.deliveries.at("s", "again").inc(2)
    metrics.settles.at("s", "ack", "acked").inc(6)
    metrics.settles.at("s", "ack", "lost").inc(100)
    metrics.settles.at("s", "retry", "retrying").inc(1)
    metrics.lease_expiries.at("s").inc(2)
    metrics.copies.at("s", "dead-letter-topic", "stored").inc(4)
    metrics.copies.at("s", "retry-topic", "stored").inc(50)
    metrics.dead_letters.at("s", "redriven").inc(1)
    metrics.dead_letters.at("s", "failed").inc(9)
    return metrics.render("")[0].decode()


def test_a_scrape() -> None:
    figures = scrape.read(exposed())["s"]
    assert figures.gauges == {"lag": 12, "in_flight": 3}
    assert (figures.oldest_s, figures.out, figures.acked) == (70, 12, 6)
    assert (figures.failed, figures.dead) == (3, 3)


def test_the_metrics_are_those_of_a_sidecar() -> None:
    known = {family.name for family in Metrics().families}
    used = {*scrape.GAUGES, scrape.OLDEST, scrape.OUT, scrape.SETTLES, scrape.EXPIRIES}
    assert used | {scrape.COPIES, scrape.TAKEN} <= known


def seen(name: str, at_s: float, out: float, state: str = "running", error: str = "") -> SeenBefore:
    """One look at one sidecar."""
    figures = scrape.SubscriptionFigures({"lag": 10, "in_flight": 1}, out=out, acked=out)
    told = {
        "s": SubscriptionReport({"state": state}, figures, messages=[message("t/0/1", since_ms=5)])
    }
    return SeenBefore(name, at_s=at_s, error=error, subscriptions=told)


def message(name: str, **more: Any) -> dict[str, Any]:
    """One in flight."""
    plain = {"state": "leased", "attempt": 1, "holder": "w", "since_ms": 1000, "error": None}
    return {"id": name, **plain, "deadline_ms": None, "due_ms": None, **more}


def test_sidecars_are_added_up_and_the_lost_left_out() -> None:
    before = {"a": seen("a", 0, 100), "b": seen("b", 0, 0)}
    now = {"a": seen("a", 2, 120), "b": seen("b", 2, 40)}
    (row,) = rows(before, now)
    assert (row.of("lag"), row.of("in_flight"), row.stuck) == (20, 2, 2)
    assert (row.out_s, row.acked_s, row.failed_s) == (30, 30, 0)
    now["b"] = seen("b", 2, 40, error="Connection refused")
    (row,) = rows(before, now)
    assert (row.state, row.of("lag"), row.out_s) == ("part lost", 10, 10)
    now["a"] = seen("a", 2, 120, error="no answer in 5 s")
    (row,) = rows(before, now)
    assert (row.state, row.of("lag"), row.out_s) == ("lost", None, None)
    assert warnings(now.values(), 62.0)[0].startswith("NO ANSWER from a for 1m2s: no answer in 5 s")


def test_counters_that_fell_give_no_rate() -> None:
    (row,) = rows({"a": seen("a", 0, 100)}, {"a": seen("a", 2, 3)})
    assert row.out_s is None


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (("running", "idle"), "running"),
        (("idle", "idle"), "idle"),
        (("running", "paused"), "paused"),
        (("paused", "starting"), "starting"),
    ],
)
def test_the_state_of_several(states: tuple[str, str], shown: str) -> None:
    now = {name: seen(name, 0, 0, state) for name, state in zip("ab", states, strict=True)}
    assert rows({}, now)[0].state == shown


def test_a_message_fits_its_line() -> None:
    long = message("t" * 300 + "/0/1", holder="h" * 300, deadline_ms=10_000)
    line = message_line(long, 80, 5_000)
    assert len(line) <= 80
    assert "/0/1" in line
    assert "in 5s" in line
    assert "not delivered yet" in message_line(message("t/0/1", state="ready", since_ms=0), 80, 0)
    old = message("t/0/1", published_ms=1_000)
    assert message_line(old, 120, 201_000).endswith(", published 3m20s ago")
    assert "published" not in message_line(old, 60, 201_000)


def lag_row(owner: str, watermark: int) -> dict[str, Any]:
    """A partition's progress."""
    numbers = {"end": 9, "committed": 1, "done_above": 4, "ready": 0, "leased": 1, "retrying": 0}
    return {"topic": "t", "partition": 0, "owner": owner, "watermark": watermark, **numbers}


def test_the_page_of_a_message_says_what_it_holds() -> None:
    head = message("t/0/1", deadline_ms=60_000)
    held = {"topic": "t", "partition": 0, "watermark": 1, "head": head, "released_by": "an ack"}
    keys = [{"head": head, "key": "k\x1b", "waiting": 3, "blocked": True}]
    explained = {"limits": ["rate"], "partitions": [held], "ordered": keys}
    served = {"own": 7, "for_peers": 2, "through_peers": 0}
    shares = [{"sidecar": "a", "partitions": 1, "retry_topic_partitions": 0, "lag": 8}]
    theirs = [{**shares[0], "sidecar": "b", "lag": -1, "served": served}]
    owner: Answer = (explained, {"partitions": [lag_row("a", 1)], "sidecars": shares}, [head])
    nothing = {"limits": ["rate"], "partitions": []}
    other: Answer = (nothing, {"partitions": [lag_row("a", -1)], "sidecars": theirs}, [])
    found = detail([other, owner, other])
    assert found.partitions == [lag_row("a", 1)]
    assert [share_cells(each) for each in found.sidecars] == [
        ["a", "1", "0", "8", *[UNKNOWN] * 3],
        ["b", "1", "0", UNKNOWN, "7", "2", "0"],
    ]
    history = History()
    history.saw(head, 2000)
    text = "\n".join(message_lines("t/0/1", found, None, history, 2000))
    assert "the whole subscription: rate" in text
    assert "holds t/0 at 1; 4 behind it are done" in text
    assert "released by: an ack" in text
    assert "3 later ones of the key k? wait for t/0/1, all of them in the retry topic" in text
    assert "1970-01-01 00:00:02Z  leased, attempt 1, w" in text
    text = "\n".join(message_lines("t/0/7", found, None, history, 2000))
    assert "does not hold t/0: that is t/0/1" in text
    assert "not in flight" in text


def test_a_history_notes_changes_and_is_bounded() -> None:
    history = History()
    for attempt in range(HISTORY_MAX * 2):
        for _ in range(3):
            history.saw(message("t/0/1", attempt=attempt), attempt)
    history.saw(None, 0)
    assert len(history.lines) == HISTORY_MAX
    assert history.lines[-1].endswith("or with another sidecar")


def test_names_of_messages() -> None:
    assert parsed_id("a/b/3/2101") == ("a/b", 3, 2101)
    assert parsed_id("a-1") is None


def test_places() -> None:
    assert of_url("http://h:1/").url == "http://h:1"
    assert of_url("unix:/run/a.sock").unix == "/run/a.sock"
    assert of_address("0.0.0.0:7081").url == "http://127.0.0.1:7081"
    assert of_address("[::1]:7081").url == "http://[::1]:7081"
    assert of_address("unix:/run/a.sock").name == "unix:/run/a.sock"
    for wrong in ("", "h:1", "ftp://h", "http://", "http://h:x", "unix:"):
        with pytest.raises(ConfigError):
            of_url(wrong)
