"""Collects finished spans into batches, and counts each span: made, written, dropped.

A span is counted as made before it is in a file, and where a kill can't erase the count: so the
next run knows what a crash has lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ackd import __version__
from ackd.telemetry.acked import Acked
from ackd.telemetry.spans import SpanEvent
from ackd.telemetry.tracecount import TraceCounts
from ackd.telemetry.traceway import TraceBatch

BATCH_SPANS = 500
SCOPE = f'{{"name":"ackd","version":"{__version__}"}}'


class SpanBuffer:
    """Only the event loop's thread calls the methods, but `finished`: that is for any thread.

    `offer` takes a batch, or has no room (False): then its spans are dropped.
    """

    def __init__(
        self, resource: str, counts: TraceCounts, offer: Callable[[TraceBatch], bool]
    ) -> None:
        self.counts = counts
        self._resource = resource
        self._offer = offer
        self._spans: list[str] = []
        self._acks: list[Acked] = []
        self._events = [0] * len(SpanEvent)
        self._lock = threading.Lock()

    def count_in(self, counts: TraceCounts) -> None:
        """Use these counts from now on; nothing has been counted yet."""
        self.counts = counts

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

    def flush(self) -> None:
        """Pass on what was collected."""
        if not self._spans and not self._acks:
            return
        batch = TraceBatch(self._resource, SCOPE, self._spans, self._events, self._acks)
        self._spans, self._acks, self._events = [], [], [0] * len(SpanEvent)
        if not self._offer(batch):
            self.finished(batch, len(batch))

    def finished(self, batch: TraceBatch, refused: int) -> None:
        """Count a batch: an exporter's thread has written it, or failed to."""
        row = self.counts.dropped if refused == len(batch) else self.counts.written
        with self._lock:
            for event, count in enumerate(batch.events):
                if count:
                    row[event] += count
