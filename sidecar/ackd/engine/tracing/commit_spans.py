"""Spans of what one partition's progress is at the broker, now and then."""

from __future__ import annotations

from collections.abc import Callable

from ackd.telemetry.spans import MessageSpans, SpanEvent, number
from ackd.telemetry.traces import Traces

COMMIT_MS = 10_000
"""Least time between two commit spans of a partition."""


class CommitSpans:
    """Writes the last commit that has no span yet, at most every `COMMIT_MS`."""

    def __init__(self, traces: Traces, now_ms: Callable[[], int]) -> None:
        self._traces = traces
        self._now_ms = now_ms
        self._written_ms = -COMMIT_MS
        self._count = 0
        self._commit: tuple[int, int] | None = None

    def committed(self, offset: int, end: int) -> None:
        """The broker has the progress. `end`: of the log, -1 if that is not known."""
        self._commit = offset, end

    def tell(self, lives: MessageSpans, store_ms: int, *, last: bool) -> None:
        """Write the last commit if its time has come. `last`: none comes after it."""
        now_ms = self._now_ms()
        if self._commit is None or not (last or now_ms - self._written_ms >= COMMIT_MS):
            return
        offset, end = self._commit
        self._commit = None
        self._written_ms = now_ms
        self._count += 1
        more = f",{number('ackd.commit.offset', offset)}"
        if end >= 0:
            more += f",{number('ackd.commit.lag', max(end - offset, 0))}"
        store_us = store_ms * 1000
        span = lives.batch(SpanEvent.COMMIT, store_us, store_us, more, self._count)
        self._traces.add(SpanEvent.COMMIT, [span])
