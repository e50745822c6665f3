"""The client library's own log, line by line as lines of ackd's.

A logger of Python's makes the library slow: it then takes every line of its debugging for wanted,
so that the reading of each message writes several, and each of these takes the interpreter's lock
in a thread of the library's to hear that nobody wants it. That was half of what a message cost. So
the library writes to a file, as which it is given a pipe, and leaves out itself what is not wanted.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pulsar

CLIENT_LOG: Final = logging.getLogger("ackd.pulsar.client")
LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
}
# Date, time, level, [thread], file:line | text
_LINE: Final = re.compile(r"\S+ \S+ (DEBUG|INFO|WARN|ERROR) +\[\S+\] (\S+) \| (.*)")
Log = Callable[[int, str], object]


@contextmanager
def client_logger() -> Iterator[Any]:
    """What to make a client with, within the block.

    The library keeps the logger of the first client of a process. It drops those of others, with
    their end of the pipe.
    """
    source, target = os.pipe()
    lines = threading.Thread(target=_read, args=(source,), name="ackd-pulsar-log", daemon=True)
    lines.start()
    try:
        yield pulsar.FileLogger(_level(), f"/dev/fd/{target}")
    finally:
        os.close(target)


def forward(line: str, level: int, log: Log) -> int:
    """Log one line of the library. `level` is that of the line before, of which this one may be the
    rest; returns this one's.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        log(level, line)
        return level
    word, place, text = found.groups()
    log(LEVELS[word], f"{place}: {text}")
    return LEVELS[word]


def _level() -> Any:
    """The least level that ackd's log shows."""
    known = pulsar.LoggerLevel
    for level, its in ((logging.DEBUG, known.Debug), (logging.INFO, known.Info)):
        if CLIENT_LOG.isEnabledFor(level):
            return its
    return known.Warn


def _read(source: int) -> None:
    level = logging.WARNING
    with open(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            level = forward(line.rstrip("\n"), level, _log)


def _log(level: int, text: str) -> None:
    CLIENT_LOG.log(level, "%s", text)
