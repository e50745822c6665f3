"""Collects spans and passes them to the exporters: bounded, counted, never delaying a message."""

from __future__ import annotations

import asyncio
import platform
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ackd import __version__
from ackd.config.schema import Settings
from ackd.config.traces import TraceSettings
from ackd.hidden import HIDDEN
from ackd.telemetry.acked import Acked
from ackd.telemetry.metrics import Metrics
from ackd.telemetry.spans import MASK_56, PRODUCER, SpanEvent, text, whole
from ackd.telemetry.tracecount import LastRun, TraceCounts
from ackd.telemetry.tracefile import TraceFiles
from ackd.telemetry.traceway import FileOutput, OtlpOutput, TraceBatch, TraceExporter

if TYPE_CHECKING:
    from ackd.telemetry.own import OwnSpans

BATCH_SPANS = 500
STATUS_MS = 60_000
SCOPE = f'{{"name":"ackd","version":"{__version__}"}}'
_ERROR = ',"status":{"code":2}'


# tidy: long-class attributes=23 -- buffers, files and counts of one writer
class Traces:
    """All spans of one sidecar. Only the event loop's thread calls the methods.

    `threshold`: a trace whose low 56 bits are below it is not sampled. `weight`: attribute of
    sampled traces, with a comma before it; empty with a sample of 1. Parts that
    collect spans of their own are called before a flush.
    """

    def __init__(
        self, settings: TraceSettings, identity: str, folder: Path, metrics: Metrics
    ) -> None:
        self.settings = settings
        self.threshold = round((1.0 - settings.sample) * (MASK_56 + 1))
        self.weight = ""
        if settings.sample < 1.0:
            weight = f'{{"doubleValue":{1.0 / settings.sample!r}}}'
            self.weight = f',{{"key":"ackd.sample.weight","value":{weight}}}'
        self._collectors: dict[object, Callable[[], None]] = {}
        self.boot = uuid4().hex
        self._identity, self._metrics = identity, metrics
        self._resource = _as_text(self._described(self.boot))
        self._own: OwnSpans | None = None
        self._own_count = 0
        self._spans: list[str] = []
        self._acks: list[Acked] = []
        self._events = [0] * len(SpanEvent)
        self._lock = threading.Lock()
        self._deleted = self._publishes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._status_ms = _now_us() // 1000
        self._seen: dict[tuple[str, str], int] = {}
        self._seen_deleted = 0
        self.ways: list[TraceExporter] = []
        self._folder = folder
        self.counts = TraceCounts(None, self.boot)
        metrics.before_scrape(self._scraped)

    # --- life

    def _open(self) -> None:
        from ackd.telemetry.own import OwnSpans  # noqa: PLC0415  only when traces are on

        settings, identity = self.settings, self._identity
        self._own = OwnSpans(
            self._described(self.boot), lambda span: self.add(SpanEvent.OWN, [span])
        )
        if settings.files:
            self.counts = TraceCounts(self._folder / f".ackd-{identity}.counts", self.boot)
            files = TraceFiles(
                self._folder,
                identity,
                datetime.now(UTC).strftime("%Y%m%dT%H%M%S"),
                bytes_max=settings.file_bytes_max,
                ms_max=settings.file_ms_max,
                disk_bytes_max=settings.disk_bytes_max,
                deleted=self._were_deleted,
            )
            self.ways.append(
                TraceExporter("file", FileOutput(files), settings.buffer_max, self._done)
            )
        if settings.otlp_url:
            output = OtlpOutput(settings.otlp_url, _token(settings.otlp_token_file))
            done = _nothing if self.ways else self._done
            self.ways.append(TraceExporter("otlp", output, settings.buffer_max, done))

    async def start(self) -> None:
        """Start the threads and the timer; report the start, and the spans that a crash has lost.

        The exporter also names the files that a killed run left. Raises ConfigError, OSError.
        """
        await asyncio.to_thread(self._open)
        for way in self.ways:
            way.start()
        if self.counts.last is not None:
            self._tell_of(self.counts.last)
        self.own("start")
        self._timer = asyncio.get_running_loop().call_later(
            self.settings.flush_ms / 1000, self._tick
        )

    async def stop(self) -> None:
        """Write everything and name the last file; bounded."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self.flush_all()
        self.own("stop")
        self._status()
        self.flush()
        await asyncio.gather(*(asyncio.to_thread(way.stop) for way in self.ways))
        self._scraped()
        self.counts.close()

    def _tick(self) -> None:
        self.flush_all()
        now_ms = _now_us() // 1000
        if now_ms - self._status_ms >= STATUS_MS:
            self._status_ms = now_ms
            self._status()
        self._timer = asyncio.get_running_loop().call_later(
            self.settings.flush_ms / 1000, self._tick
        )

    # --- spans

    def add(self, event: SpanEvent, spans: list[str]) -> None:
        """Add finished spans of one event."""
        self.counts.made[event] += len(spans)
        self.put(event, spans, len(spans))

    def expect(self, event: SpanEvent, count: int) -> None:
        """Count spans that will follow for this many messages, so that a crash before that counts
        them as lost. A negative number takes it back.
        """
        self.counts.made[event] += count

    def put(self, event: SpanEvent, spans: list[str], count: int) -> None:
        """Add spans that were expected; they stand for `count`."""
        self._spans += spans
        self._events[event] += count
        if len(self._spans) >= BATCH_SPANS:
            self.flush()

    def acked(self, acks: list[Acked]) -> None:
        """Add acked messages; the exporter's thread writes their spans later."""
        self.counts.made[SpanEvent.ACK] += len(acks)
        self._events[SpanEvent.ACK] += len(acks)
        self._acks += acks
        if len(self._acks) >= BATCH_SPANS:
            self.flush()

    def lost(self, event: SpanEvent) -> None:
        """Count a span that can't be made: its message is no longer known."""
        self.counts.made[event] += 1
        self.drop(event)

    def drop(self, event: SpanEvent) -> None:
        """Count a span that was expected and can't be made."""
        with self._lock:
            self.counts.dropped[event] += 1

    def own(
        self,
        name: str,
        attributes: Mapping[str, str | int] | None = None,
        *,
        start_us: int = 0,
        error: bool = False,
        of: str = "ackd",
        once: str = "",
        caller: Mapping[str, str] | None = None,
    ) -> None:
        """Add a span of the sidecar itself, by this machine's clock. `start_us` 0: it is a moment.

        `once`: identifies the event wherever it is reported, if it may be reported again; `caller`:
        headers of the request that caused it (`ackd.telemetry.caller`).
        """
        if self._own is None:
            return
        self._own_count += 1
        now_us = _now_us()
        self._own.tell(
            f"{name} {of}",
            {"ackd.event": name, **(attributes or {})},
            (start_us or now_us, now_us),
            f"{name}/{once or f'{self.boot}/{self._own_count}'}",
            error=error,
            caller=caller,
        )

    def published(self, more: str, start_ms: int, topic: str, *, failed: bool) -> None:
        """Add a span for a request that published something; one in as many as the sample says, or
        all that failed.
        """
        self._publishes += 1
        if not failed and self._publishes % round(1 / self.settings.sample):
            return
        attributes = f"{text('ackd.event', 'publish')}{more}{'' if failed else self.weight}"
        times = start_ms * 1000, max(_now_us(), start_ms * 1000)
        status = _ERROR if failed else ""
        trace = int(uuid4().hex, 16)
        span = whole(trace, f"publish {topic}", PRODUCER, times, attributes, status)
        self.add(SpanEvent.PUBLISH, [span])

    def collect(self, owner: object, flush: Callable[[], None]) -> None:
        """Call `flush` before each flush: its owner collects spans of its own."""
        self._collectors[owner] = flush

    def collected(self, owner: object) -> None:
        """Call this owner no more."""
        self._collectors.pop(owner, None)

    def flush_all(self) -> None:
        """Flush all spans, including those that other parts collect."""
        for collect in list(self._collectors.values()):
            collect()
        self.flush()

    def flush(self) -> None:
        """Pass what was collected to each exporter; what an exporter has no room for is dropped."""
        if not self._spans and not self._acks:
            return
        batch = TraceBatch(self._resource, SCOPE, self._spans, self._events, self._acks)
        self._spans, self._acks, self._events = [], [], [0] * len(SpanEvent)
        for way in self.ways:
            if not way.offer(batch) and way is self.ways[0]:
                self._count(batch, len(batch))

    def _done(self, batch: TraceBatch, refused: int) -> None:
        """The first exporter's thread has written a batch, or failed to."""
        self._count(batch, refused)

    def _count(self, batch: TraceBatch, refused: int) -> None:
        row = self.counts.dropped if refused == len(batch) else self.counts.written
        with self._lock:
            for event, count in enumerate(batch.events):
                if count:
                    row[event] += count

    # --- about itself

    def _described(self, boot: str) -> dict[str, str]:
        return {
            "service.name": "ackd",
            "service.version": __version__,
            "service.instance.id": self._identity,
            "host.name": platform.node(),
            "ackd.boot.id": boot,
        }

    def _status(self) -> None:
        more = {
            "ackd.spans.written": sum(self.counts.written),
            "ackd.spans.dropped": sum(self.counts.dropped),
        }
        more |= _by_event("dropped", {e: self.counts.dropped[e] for e in SpanEvent})
        if self._deleted:
            more["ackd.files.deleted"] = self._deleted
        self.own("status", more)

    def _tell_of(self, last: LastRun) -> None:
        """Report what the previous run lost when it was killed, under that run's name."""
        from ackd.telemetry.own import OwnSpans  # noqa: PLC0415  only when traces are on

        lost = sum(last.lost.values())
        more: dict[str, str | int] = {
            "ackd.event": "status",
            "ackd.spans.written": last.written,
            "ackd.spans.dropped": sum(last.dropped.values()) + lost,
        }
        more |= _by_event("lost", last.lost) | _by_event("dropped", last.dropped)
        described = self._described(last.boot)

        def put(span: str) -> None:
            events = [0] * len(SpanEvent)
            events[SpanEvent.OWN] = 1
            self.counts.made[SpanEvent.OWN] += 1
            batch = TraceBatch(_as_text(described), SCOPE, [span], events)
            for way in self.ways:
                way.offer(batch)

        now_us = _now_us()
        OwnSpans(described, put).tell("status ackd", more, (now_us, now_us), f"lost/{last.boot}")
        self._metrics.trace_spans.at(self.ways[0].name, "crash").inc(lost)

    def _were_deleted(self, files: int) -> None:
        self._deleted += files

    def _scraped(self) -> None:
        """Copy the threads' numbers into the metrics."""
        for way in self.ways:
            now = {"written": way.written, "full": way.full, "failed": way.failed}
            for outcome, count in now.items():
                more = count - self._seen.get((way.name, outcome), 0)
                self._metrics.trace_spans.at(way.name, outcome).inc(more)
                self._seen[way.name, outcome] = count
        self._metrics.trace_files_deleted.at().inc(self._deleted - self._seen_deleted)
        self._seen_deleted = self._deleted


def open_traces(settings: Settings, metrics: Metrics) -> Traces:
    """Make the exporters and files that the settings ask for."""
    traces = settings.traces
    folder = traces.folder or settings.state_dir / "traces"
    return Traces(traces, settings.identity, folder, metrics)


def _as_text(resource: Mapping[str, str]) -> str:
    return ",".join(text(key, value) for key, value in resource.items())


def _by_event(fate: str, counts: Mapping[SpanEvent, int]) -> dict[str, int]:
    """Attributes for the events with a count above 0."""
    return {f"ackd.spans.{fate}.{e.name.lower()}": count for e, count in counts.items() if count}


def _nothing(_: TraceBatch, __: int) -> None:
    """Do nothing: the exporter itself counts its losses."""


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    token = path.read_text().split("\n", 1)[0].strip()
    HIDDEN.add(token)
    return token


def _now_us() -> int:
    return time.time_ns() // 1000
