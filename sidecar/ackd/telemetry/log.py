"""Logging: one line per event on standard error, JSON or text, bounded, without secrets.

Any module uses the standard library's `logging`; facts go into `extra` and become fields of the
line: `log.warning("store is away", extra={"url": url})`. Three guards (invariant I8, no leaks):

* lines are written by a thread of their own behind a bounded queue, so that a reader that stands
  still (a full pipe) never holds up a message; what does not fit is dropped and counted;
* a line that repeats (same logger, level and text before its arguments are put in) is written
  `BURST` times in `WINDOW_S`, then counted; the next one written says how many were left out;
* passwords, bearer tokens, user info in URLs and the signed part of lease tokens are taken out.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from queue import Full, Queue
from typing import TextIO

from ackd.config.schema import TelemetrySettings
from ackd.hidden import HIDDEN, Hidden

QUEUE_LINES_MAX = 10_000
BURST = 20
WINDOW_S = 10.0
REPEATS_MAX = 500
FIELD_CHARS_MAX = 4096
CLOSE_S_MAX = 2.0
STARS = "***"

# Chatty below a warning; `debug` shows them.
QUIET = ("asyncio", "aiohttp", "redis", "urllib3")

_TRACEBACKS = logging.Formatter()
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PATTERNS = (
    (re.compile(r"(?<=://)[^/@\s]*@"), f"{STARS}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s'\",;]+", re.IGNORECASE), rf"\1 {STARS}"),
    (
        re.compile(
            r"\b([\w.-]*(?:password|passwd|secret|api[_-]?key|credential)[\w.-]*)"
            r"(\"?'?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;)}\]]+)",
            re.IGNORECASE,
        ),
        rf"\1\2{STARS}",
    ),
    # A lease token settles a message: enough is kept to recognise it, not to use it.
    (re.compile(r"\b(v1\.[A-Za-z0-9_-]{8})[A-Za-z0-9_-]{12,}"), r"\1..."),
)
_SECRET_FIELD = re.compile(r"password|passwd|secret|authorization|credential", re.IGNORECASE)

Dropped = Callable[[str], None]
Lines = Queue[logging.LogRecord | None]


class Redactor:
    """Removes secrets from a text: by their form, and by their value if `ackd.hidden` knows it."""

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden

    def text(self, text: str) -> str:
        for secret in self._hidden.values():
            if secret in text:
                text = text.replace(secret, STARS)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def field(self, name: str, value: object) -> object:
        """Encode a field of a line as JSON; cut a long one."""
        if _SECRET_FIELD.search(name):
            return STARS
        if value is None or isinstance(value, bool | int | float):
            return value
        text = value if isinstance(value, str) else repr(value)
        return self.short(text)

    def short(self, text: str) -> str:
        """As `text`, cut to `FIELD_CHARS_MAX`; looks for secrets first, so that no cut splits
        one.
        """
        return self.text(text[: 2 * FIELD_CHARS_MAX])[:FIELD_CHARS_MAX]


class Repeats(logging.Filter):
    """Lets a line pass `BURST` times in `WINDOW_S` seconds, and drops further repeats."""

    def __init__(self, dropped: Dropped) -> None:
        super().__init__()
        self._dropped = dropped
        self._lock = threading.Lock()
        # By line: start of the window (s), written in it, left out since the last written one.
        self._seen: OrderedDict[tuple[str, int, str], list[float]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the line. The first one after dropped repeats gets their count,
        `left_out`.
        """
        key = (record.name, record.levelno, str(record.msg)[:200])
        with self._lock:
            seen = self._seen.setdefault(key, [record.created, 0, 0])
            self._seen.move_to_end(key)
            if len(self._seen) > REPEATS_MAX:
                self._seen.popitem(last=False)
            if record.created - seen[0] >= WINDOW_S:
                seen[0], seen[1] = record.created, 0
            if seen[1] >= BURST:
                seen[2] += 1
                self._dropped("repeated")
                return False
            seen[1] += 1
            if seen[2]:
                record.left_out = int(seen[2])
                seen[2] = 0
        return True


class LogFields:
    """Reads from a record what a line of either form shows, without secrets."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def added(self, record: logging.LogRecord) -> dict[str, object]:
        """Return the fields that the caller added to the record."""
        return {
            name: self._redactor.field(name, value)
            for name, value in vars(record).items()
            if name not in _PLAIN and not name.startswith("_")
        }

    def message(self, record: logging.LogRecord) -> str:
        return self._redactor.short(record.getMessage())

    def failure(self, record: logging.LogRecord) -> str | None:
        """Return the traceback, if the record has one."""
        if record.exc_text is None and record.exc_info:
            record.exc_text = _TRACEBACKS.formatException(record.exc_info)
        return None if record.exc_text is None else self._redactor.text(record.exc_text)

    def time(self, record: logging.LogRecord) -> str:
        """Return the time of the record, UTC, in ISO 8601 with milliseconds."""
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonLines(logging.Formatter):
    """Writes one JSON object per line: time, level, logger, message, extra fields, failure."""

    def __init__(self, fields: LogFields) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; it never has a line break inside."""
        line: dict[str, object] = {
            "time": self._fields.time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._fields.message(record),
        }
        for name, value in self._fields.added(record).items():
            line.setdefault(name, value)
        failure = self._fields.failure(record)
        if failure is not None:
            line["failure"] = failure
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """For people: `12:00:01.250 WARNING ackd.store: store is away url=...`."""

    def __init__(self, fields: LogFields) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows on further lines."""
        of = self._fields
        extra = "".join(f" {name}={value}" for name, value in of.added(record).items())
        message = of.message(record).replace("\n", "\n    ")
        line = f"{of.time(record)[11:23]} {record.levelname:<7} {record.name}: {message}{extra}"
        failure = of.failure(record)
        return line if failure is None else f"{line}\n{failure}"


class _Queued(logging.Handler):
    """Puts a line into the queue, or drops and counts it when the queue is full."""

    def __init__(self, lines: Lines, dropped: Dropped) -> None:
        super().__init__()
        self._lines = lines
        self._dropped = dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Insert the arguments now, while their values are current; the writer thread does the
        rest.
        """
        try:
            record.msg, record.args = record.getMessage(), None
            self._lines.put_nowait(record)
        except Full:
            self._dropped("slow-reader")
        except (TypeError, ValueError, KeyError):
            # The arguments do not fit the message: our bug, and no reason to fail the caller.
            self._dropped("malformed")


class _LineWriter(logging.StreamHandler[TextIO]):
    """Writes lines. A reader that has gone must not end the process or print tracebacks."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the base's name
        """Do nothing: a broken standard error can't be reported on standard error."""


class LogOutput:
    """Logging while it runs: the handler at the root logger that fills the queue, and the thread
    that writes.
    """

    def __init__(self, handler: logging.Handler, lines: Lines, writer: logging.Handler) -> None:
        self._handler = handler
        self._lines = lines
        self._writer = writer
        self._thread = threading.Thread(target=self._run, name="ackd-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is queued and end the thread, for at most `CLOSE_S_MAX` s; may be repeated."""
        logging.getLogger().removeHandler(self._handler)
        if not self._thread.is_alive():
            return
        try:
            self._lines.put(None, timeout=CLOSE_S_MAX)
        except Full:
            return
        self._thread.join(CLOSE_S_MAX)

    def _run(self) -> None:
        while True:
            record = self._lines.get()
            if record is None:
                return
            self._writer.handle(record)


REDACTOR = Redactor(HIDDEN)

# Lines not written since the start, by reason; `Metrics` shows them.
DROPPED: Counter[str] = Counter()


def _count(reason: str) -> None:
    DROPPED[reason] += 1


def set_up(
    settings: TelemetrySettings,
    *,
    stream: TextIO | None = None,
    dropped: Dropped = _count,
) -> LogOutput:
    """Send every logger's lines to `stream` (default: standard error) in the configured form.

    `dropped` is told `repeated`, `slow-reader` or `malformed` for each line that is not written;
    by default they are counted in `DROPPED`.
    """
    fields = LogFields(REDACTOR)
    form = JsonLines(fields) if settings.log_format == "json" else TextLines(fields)
    writer = _LineWriter(sys.stderr if stream is None else stream)
    writer.setFormatter(form)
    lines: Lines = Queue(QUEUE_LINES_MAX)
    handler = _Queued(lines, dropped)
    handler.addFilter(Repeats(dropped))
    root = logging.getLogger()
    root.setLevel(settings.log_level.upper())
    root.addHandler(handler)
    quiet = logging.NOTSET if settings.log_level == "debug" else logging.WARNING
    for name in QUIET:
        logging.getLogger(name).setLevel(quiet)
    logging.captureWarnings(True)
    return LogOutput(handler, lines, writer)
