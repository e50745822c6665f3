"""The threads that take spans out of the process: into files, and to a collector.

A thread takes batches from a bounded queue. What does not fit is dropped and counted, so neither a
slow disk nor an unreachable collector delays a message.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import queue
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import orjson
from tenacity import RetryCallState, Retrying, retry_if_exception, sleep_using_event

from ackd.core.backoff import Backoff
from ackd.telemetry.acked import Acked
from ackd.telemetry.trace_line import line_parts
from ackd.telemetry.tracefile import TraceFiles, compressed

LOG = logging.getLogger("ackd.traces")
LOOK_S = 1.0
JOIN_S = 10.0
CALL_TIMEOUT_S = 10.0
AFTER_S_MAX = 30.0
EXPORT_AGAIN = Backoff(500, 30_000)
AGAIN = frozenset({429, 502, 503, 504})
"""Answers after which the same request may be sent again (OTLP 1.x, "Retryable Response Codes")."""
ACCEPTED = 200
_REPLY_BYTES_MAX = 65_536


class ExportError(Exception):
    """The output did not take a batch. `again`: it may later, after `after_s` at the earliest."""

    def __init__(self, detail: str, *, again: bool, after_s: float = 0.0) -> None:
        super().__init__(detail)
        self.again = again
        self.after_s = after_s


@dataclass(slots=True)
class TraceBatch:
    """Spans of one resource; those in `acks` are not text yet. `events` counts them by event: a
    batch span counts once for each of its messages.
    """

    resource: str
    scope: str
    spans: list[str]
    events: Sequence[int]
    acks: Sequence[Acked] = ()

    def __len__(self) -> int:
        return len(self.spans) + len(self.acks)

    def member(self) -> bytes:
        return compressed(line_parts(self.resource, self.spans, self.scope, self.acks))


class Output(Protocol):
    """Where an exporter writes; used by its thread only."""

    def open(self) -> None:
        """Open the output, before the first batch. Raises OSError."""

    def put(self, batch: TraceBatch) -> int:
        """Write a batch; returns how many of its spans were refused. Raises OSError,
        ExportError.
        """

    def look(self) -> None:
        """Called after each batch, and now and then. Raises OSError."""

    def close(self) -> None:
        """Close the output after the last batch. Raises OSError."""


Done = Callable[[TraceBatch, int], None]
"""The exporter's thread calls it with a batch and how many of its spans were not written."""


# tidy: long-class attributes=13 -- the state of one way out
class TraceExporter:
    """One output with its thread. `full` and `failed` count spans that were dropped."""

    def __init__(self, name: str, output: Output, most: int, done: Done) -> None:
        self.name = name
        self.written = self.full = self.failed = 0
        self._output = output
        self._most = most
        self._done = done
        self._put = self._taken = 0
        self._queue: queue.SimpleQueue[TraceBatch | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traces.{name}", daemon=True)
        self._reported = False

    def start(self) -> None:
        self._thread.start()

    def offer(self, batch: TraceBatch) -> bool:
        """Queue a batch without waiting. False: there is no room, so it is dropped and counted."""
        count = len(batch)
        if self._put - self._taken + count > self._most:
            self.full += count
            return False
        self._put += count
        self._queue.put(batch)
        return True

    def stop(self) -> None:
        """Write the queued batches within a bounded time, and wait for that."""
        self._stopping.set()
        self._queue.put(None)
        self._thread.join(JOIN_S)
        if self._thread.is_alive():
            LOG.warning("traces: %s did not write its last spans in time: they are lost", self.name)

    def _run(self) -> None:
        going = True
        self._safely(self._output.open)
        while going:
            try:
                batch = self._queue.get(timeout=LOOK_S)
            except queue.Empty:
                self._safely(self._output.look)
                continue
            if batch is None:
                going = False
                self._safely(self._output.close)
            else:
                self._write(batch)
                self._safely(self._output.look)

    def _write(self, batch: TraceBatch) -> None:
        count = refused = len(batch)
        retrying = Retrying(
            retry=retry_if_exception(self._again),
            wait=_pause_s,
            sleep=sleep_using_event(self._stopping),
            reraise=True,
        )
        with contextlib.suppress(OSError, ExportError):
            refused = retrying(self._offer, batch)
        self.written += count - refused
        self.failed += refused
        self._taken += count
        self._done(batch, refused)

    def _offer(self, batch: TraceBatch) -> int:
        try:
            refused = self._output.put(batch)
        except (OSError, ExportError) as error:
            self._tell(error)
            raise
        self._reported = False
        return refused

    def _again(self, error: BaseException) -> bool:
        return isinstance(error, ExportError) and error.again and not self._stopping.is_set()

    def _safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        """Log a failure once, until the output works again."""
        if not self._reported:
            self._reported = True
            LOG.warning("traces: %s can't write spans: %s", self.name, error)


class FileOutput:
    """Writes batches into trace files, and makes room for them."""

    def __init__(self, files: TraceFiles) -> None:
        self._files = files

    def open(self) -> None:
        """Name the files that a killed run left."""
        self._files.recover()

    def put(self, batch: TraceBatch) -> int:
        """Write the batch as one line in one gzip member."""
        self._files.write(batch.member(), _now_ms())
        return 0

    def look(self) -> None:
        """Close a file that is full or old."""
        self._files.look(_now_ms())

    def close(self) -> None:
        """Close the last file and give it its final name."""
        self._files.close()


class OtlpOutput:
    """Posts batches to a collector: OTLP/HTTP with JSON, gzip, on one connection."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        host = parts.hostname or "localhost"
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=CALL_TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=CALL_TIMEOUT_S)
        self._path = (parts.path or "/v1/traces") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def open(self) -> None:
        """Nothing to do: the first request connects."""

    def put(self, batch: TraceBatch) -> int:
        """POST the batch; returns how many spans the collector refused (partial success)."""
        body = batch.member()
        try:
            self._connection.request("POST", self._path, body, self._headers)
            answer = self._connection.getresponse()
            data = answer.read(_REPLY_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise ExportError(f"no answer from the collector: {error!r}", again=True) from error
        if answer.status != ACCEPTED:
            self._connection.close()
            raise ExportError(
                f"the collector answered {answer.status}",
                again=answer.status in AGAIN,
                after_s=_after_s(answer.headers.get("Retry-After", "")),
            )
        return _refused(data)

    def look(self) -> None: ...

    def close(self) -> None:
        self._connection.close()


def _pause_s(state: RetryCallState) -> float:
    """Return the pause before the next try, in s: what the collector asks for, and longer after
    each failure.
    """
    error = state.outcome.exception() if state.outcome else None
    asked_s = error.after_s if isinstance(error, ExportError) else 0.0
    return max(EXPORT_AGAIN.delay_ms(state.attempt_number) / 1000, asked_s)


def _after_s(value: str) -> float:
    """Seconds of the header `Retry-After`, within our bounds; a date counts as absent."""
    return min(float(value), AFTER_S_MAX) if value.isascii() and value.isdigit() else 0.0


def _refused(answer: bytes) -> int:
    """Read `rejectedSpans` of an ExportTraceServiceResponse; 0 if it has none."""
    try:
        document = orjson.loads(answer or b"{}")
        return int((document.get("partialSuccess") or {}).get("rejectedSpans") or 0)
    except (ValueError, AttributeError, TypeError):
        return 0


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
