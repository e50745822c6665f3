"""Log lines: their form, no secrets, bounded repeats, and never a block (I8)."""

import io
import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.config.schema import LogFormat, TelemetrySettings
from ackd.hidden import HIDDEN, Hidden
from ackd.telemetry import log
from ackd.telemetry.log import BURST, FIELD_CHARS_MAX, QUEUE_LINES_MAX, Redactor

LOG = logging.getLogger("ackd.test")


@contextmanager
def running(
    form: LogFormat = "json", level: str = "info"
) -> Iterator[tuple[io.StringIO, Counter[str]]]:
    """The set-up with a stream of its own; the root logger is put back afterwards."""
    root = logging.getLogger()
    before, others = root.level, root.handlers[:]
    # pytest's own handlers raise what ours must swallow.
    root.handlers.clear()
    stream, dropped = io.StringIO(), Counter[str]()
    settings = TelemetrySettings(log_format=form, log_level="debug" if level == "debug" else "info")
    output = log.set_up(settings, stream=stream, dropped=lambda reason: dropped.update([reason]))
    try:
        yield stream, dropped
    finally:
        output.close()
        output.close()
        root.setLevel(before)
        root.handlers[:] = others
        logging.captureWarnings(False)


def lines(act: Callable[[], None], **how: str) -> list[dict[str, object]]:
    """What is written while `act` runs, as JSON."""
    with running(**how) as (stream, _):  # type: ignore[arg-type]
        act()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(problem: str, message: str) -> None:
    """Log a failure with its traceback."""
    failure = ValueError(problem)
    LOG.error(message, exc_info=failure)


def test_a_line_is_one_json_object_with_the_extra_fields() -> None:
    def act() -> None:
        LOG.warning("store\nis %s", "away", extra={"url": "redis://h", "tries": 3, "seen": None})
        fail("broken", "failed")

    first, second = lines(act)
    assert first["message"] == "store\nis away"
    assert (first["level"], first["logger"]) == ("warning", "ackd.test")
    assert (first["url"], first["tries"], first["seen"]) == ("redis://h", 3, None)
    assert str(first["time"]).endswith("Z")
    assert "ValueError: broken" in str(second["failure"])


def test_text_is_for_people() -> None:
    with running(form="text") as (stream, _):
        LOG.warning("store is away", extra={"tries": 3})
    line = stream.getvalue()
    assert line.endswith("WARNING ackd.test: store is away tries=3\n")


def test_levels_and_quiet_libraries() -> None:
    def act() -> None:
        LOG.debug("ours")
        logging.getLogger("aiohttp.server").info("theirs")
        LOG.info("said")

    assert [line["message"] for line in lines(act)] == ["said"]
    assert [line["message"] for line in lines(act, level="debug")] == ["ours", "theirs", "said"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("redis://me:hush@h:1/0", "hush"),
        ("Authorization: Bearer abc.def", "abc.def"),
        ("sasl.password=hush, x", "hush"),
        ('{"password": "hu sh"}', "hu sh"),
        ("tls_key_password: hush", "hush"),
        ("v1.AAAAAAAAbbbbbbbbbbbbccccccccccdd", "bbbbbbbbbbbb"),
        ("known-by-value", "known-by-value"),
    ],
)
def test_secrets_are_taken_out_wherever_they_stand(text: str, secret: str) -> None:
    HIDDEN.add("known-by-value")

    def act() -> None:
        LOG.info("see %s", text)
        LOG.info("fields", extra={"url": text, "error": ValueError(text)})
        fail(text, "failure")

    written = lines(act)
    assert len(written) == 3
    assert secret not in json.dumps(written)


def test_a_field_that_is_named_after_a_secret_is_hidden() -> None:
    (line,) = lines(lambda: LOG.info("x", extra={"password": "hush", "db_passwd": "hush"}))
    assert (line["password"], line["db_passwd"]) == ("***", "***")


@given(st.text(min_size=4, max_size=30), st.integers(0, FIELD_CHARS_MAX + 50))
def test_no_cut_lets_a_part_of_a_secret_through(secret: str, offset: int) -> None:
    hidden = Hidden()
    hidden.add(secret)
    shown = Redactor(hidden).short("\x00" * offset + secret)
    assert len(shown) <= FIELD_CHARS_MAX
    assert shown.strip("\x00") in ("***", "**", "*", "") or secret.strip("\x00*") == ""


def test_what_repeats_is_counted_instead_of_written() -> None:
    with running() as (stream, dropped):
        for number in range(BURST + 80):
            LOG.info("again %d", number)
        LOG.info("something else")
    assert len(stream.getvalue().splitlines()) == BURST + 1
    assert dropped == {"repeated": 80}


def test_the_next_one_written_says_how_many_were_left_out() -> None:
    repeats = log.Repeats(lambda _reason: None)

    def record(created: float) -> logging.LogRecord:
        made = logging.makeLogRecord({"name": "a", "levelno": 20, "msg": "again"})
        made.created = created
        return made

    assert [repeats.filter(record(0.0)) for _ in range(BURST + 5)].count(True) == BURST
    late = record(log.WINDOW_S)
    assert repeats.filter(late)
    assert vars(late)["left_out"] == 5


def test_arguments_that_do_not_fit_never_fail_the_caller() -> None:
    with running() as (stream, dropped):
        LOG.info("%d", "x")
    assert stream.getvalue() == ""
    assert dropped == {"malformed": 1}


def test_a_reader_that_stands_still_blocks_nobody() -> None:
    """I8: a full pipe; lines are dropped and counted, and closing is bounded."""
    reading, writing = os.pipe()
    root = logging.getLogger()
    before, dropped = root.level, Counter[str]()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "w") as stream:
        output = log.set_up(
            TelemetrySettings(), stream=stream, dropped=lambda reason: dropped.update([reason])
        )
        writer = next(t for t in threading.enumerate() if t.name == "ackd-log")
        for number in range(QUEUE_LINES_MAX + 3000):
            # A text of its own each time: the filter for repeats must not help.
            LOG.info(f"{number:<60}")  # noqa: G004  as said
        assert dropped["slow-reader"] > 0
        drain = threading.Thread(target=lambda: [None for _ in iter(lambda: pipe.read(65536), b"")])
        drain.start()
        output.close()
        writer.join(60)
        assert not writer.is_alive()
        stream.close()
        drain.join(60)
    root.setLevel(before)
    logging.captureWarnings(False)
