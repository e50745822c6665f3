"""Spans about many messages of one partition: which ones were delivered, and which were acked.

Each flush writes at most one of each, with counts and offsets. They are never sampled. So
deliveries and acks can be counted, and every message that was delivered again after its ack can be
found, whatever the sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ackd.telemetry.spans import MessageSpans, SpanEvent, number, ranges, text, truth

if TYPE_CHECKING:
    from ackd.telemetry.traces import Traces

OFFSETS_MAX = 10_000
"""Most offsets in one span."""


class SpanBatches:
    """Collects offsets until the next flush. `copies`: they are of the retry topic, so the offsets
    say nothing about the messages and are left out.
    """

    def __init__(self, traces: Traces, *, copies: bool) -> None:
        self._traces = traces
        self._copies = copies
        self._granted: list[int] = []
        self._granted_us = (0, 0)
        self._again = 0
        self._acked: set[int] = set()
        self._acked_ms = (0, 0)
        self._number = 0

    def granted(self, lives: MessageSpans, offsets: Sequence[int], again: int, fence: int) -> None:
        """Leases of one reply; `again` of them are not the first of their message; `fence`: that of
        the last lease.
        """
        if not self._acked.isdisjoint(offsets):
            self.flush(lives)  # the spans must show the order
        self._traces.expect(SpanEvent.RECEIVE, len(offsets))
        self._granted_us = self._granted_us[0] if self._granted else fence, fence
        self._granted += offsets
        self._again += again
        if len(self._granted) >= OFFSETS_MAX:
            self.flush(lives)

    def acked(self, lives: MessageSpans, offsets: Sequence[int], now_ms: int) -> None:
        self._traces.expect(SpanEvent.SETTLE, len(offsets))
        self._acked_ms = self._acked_ms[0] if self._acked else now_ms, now_ms
        before = len(self._acked)
        self._acked.update(offsets)
        known = len(offsets) + before - len(self._acked)
        if known:
            self._traces.put(SpanEvent.SETTLE, [], known)
        if len(self._acked) >= OFFSETS_MAX:
            self.flush(lives)

    def flush(self, lives: MessageSpans) -> None:
        if self._granted:
            more = f",{number('ackd.again', self._again)}" if self._again else ""
            self._write(lives, SpanEvent.RECEIVE, self._granted_us, self._granted, more)
        if self._acked:
            times_us = self._acked_ms[0] * 1000, self._acked_ms[1] * 1000
            self._write(lives, SpanEvent.SETTLE, times_us, list(self._acked), "")
        self._granted, self._again, self._acked = [], 0, set()

    def _write(
        self,
        lives: MessageSpans,
        event: SpanEvent,
        times_us: tuple[int, int],
        offsets: list[int],
        more: str,
    ) -> None:
        count = len(offsets)
        what = truth("ackd.copies") if self._copies else text("ackd.offsets", ranges(offsets))
        more += f",{number('messaging.batch.message_count', count)},{what}"
        self._number += 1
        span = lives.batch(event, *times_us, more, self._number)
        self._traces.put(event, [span], count)
