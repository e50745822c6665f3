"""All spans of a sidecar: bounded, counted, never delaying a message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

from ackd.config.schema import Settings
from ackd.config.traces import TraceSettings
from ackd.telemetry.acked import Acked
from ackd.telemetry.metrics import Metrics
from ackd.telemetry.sidecar_spans import SidecarSpans
from ackd.telemetry.span_buffer import SpanBuffer
from ackd.telemetry.spans import MASK_56, PRODUCER, SpanEvent, text, whole
from ackd.telemetry.trace_exports import TraceExports
from ackd.telemetry.tracecount import TraceCounts

STATUS_MS = 60_000
_ERROR = ',"status":{"code":2}'


class Traces:
    """What parts report spans to. Only the event loop's thread calls the methods.

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
        self._boot = uuid4().hex
        self._counts_path = folder / f".ackd-{identity}.counts"
        self._collectors: dict[object, Callable[[], None]] = {}
        self._sidecar = SidecarSpans(identity, self._boot)
        self.exports = TraceExports(settings, identity, folder, metrics)
        counts = TraceCounts(None, self._boot)
        self._buffer = SpanBuffer(self._sidecar.resource, counts, self.exports.offer)
        self._publishes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._status_ms = _now_us() // 1000

    @property
    def counts(self) -> TraceCounts:
        """Spans made, written and dropped."""
        return self._buffer.counts

    # --- life

    def _open(self) -> None:
        self._sidecar.open(lambda span: self.add(SpanEvent.OWN, [span]))
        if self.settings.files:
            self._buffer.count_in(TraceCounts(self._counts_path, self._boot))
        self.exports.open(self._buffer.finished)

    async def start(self) -> None:
        """Start the exporters and the timer; report the start, and the spans that a crash has lost.

        Raises ConfigError, OSError.
        """
        await asyncio.to_thread(self._open)
        self.exports.start()
        last = self.counts.last
        if last is not None:
            self.expect(SpanEvent.OWN, 1)
            self._sidecar.last_run(last, self.exports.offer)
            self.exports.lost_in_crash(sum(last.lost.values()))
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
        self._sidecar.status(self.counts, self.exports.deleted)
        self.flush()
        await self.exports.stop()
        self.counts.close()

    def _tick(self) -> None:
        self.flush_all()
        now_ms = _now_us() // 1000
        if now_ms - self._status_ms >= STATUS_MS:
            self._status_ms = now_ms
            self._sidecar.status(self.counts, self.exports.deleted)
        self._timer = asyncio.get_running_loop().call_later(
            self.settings.flush_ms / 1000, self._tick
        )

    # --- spans

    def add(self, event: SpanEvent, spans: list[str]) -> None:
        """Add finished spans of one event."""
        self._buffer.add(event, spans)

    def expect(self, event: SpanEvent, count: int) -> None:
        """Count spans that will follow for this many messages, so that a crash before that counts
        them as lost. A negative number takes it back.
        """
        self._buffer.expect(event, count)

    def put(self, event: SpanEvent, spans: list[str], count: int) -> None:
        """Add spans that were expected; they stand for `count`."""
        self._buffer.put(event, spans, count)

    def acked(self, acks: list[Acked]) -> None:
        """Add acked messages; the exporter's thread writes their spans later."""
        self._buffer.acked(acks)

    def lost(self, event: SpanEvent) -> None:
        """Count a span that can't be made: its message is no longer known."""
        self._buffer.lost(event)

    def drop(self, event: SpanEvent) -> None:
        """Count a span that was expected and can't be made."""
        self._buffer.drop(event)

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
        self._sidecar.add(
            name, attributes, start_us=start_us, error=error, of=of, once=once, caller=caller
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
        """Pass what was collected to each exporter; what the first has no room for is dropped."""
        self._buffer.flush()


def open_traces(settings: Settings, metrics: Metrics) -> Traces:
    """Make the exporters and files that the settings ask for."""
    traces = settings.traces
    folder = traces.folder or settings.state_dir / "traces"
    return Traces(traces, settings.identity, folder, metrics)


def _now_us() -> int:
    return time.time_ns() // 1000
