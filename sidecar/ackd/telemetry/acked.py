"""Spans of acked messages, kept as plain facts until the exporter's thread writes them as text.

Nearly all spans are of this kind, and as text each takes one and a half kilobytes. The text of a
whole second, waiting for its flush, would push everything else out of the processor's caches.
"""

from __future__ import annotations

from collections.abc import Iterable

from ackd.telemetry.spans import (
    BEFORE_IDS,
    MASK_64,
    MASK_128,
    STEP_128,
    STEP_FENCE,
    STEP_OFFSET,
    MessageSpans,
    link,
)

Acked = tuple[MessageSpans, int, int, int, int, int, int, str, bytes | None, str]
"""Partition, offset, attempt, fence (us), time of the ack (ms), deadline (ms), time of the publish
(ms), holder (an attribute with a comma before it), the publisher's `traceparent`, further
attributes, each with a comma before it.
"""
DEADLINE = ',{"key":"ackd.lease.deadline.unix_ms","value":{"intValue":"'
PUBLISHED = '"}},{"key":"ackd.publish.unix_ms","value":{"intValue":"'
END = '"}}'


def texts(acks: Iterable[Acked]) -> list[str]:
    """Write the spans as `MessageSpans.span` does, in one loop without a call for each."""
    found: list[str] = []
    last: MessageSpans | None = None
    a = b = c = d = e = f = g = h = i = j = k = ""
    traces = spans = 0
    for lives, offset, attempt, fence, end_ms, due_ms, sent_ms, holder, parent, more in acks:
        if lives is not last:
            (a, b, c, d, e, f, g, h, i, j, k), traces, spans = lives.acks
            last = lives
        trace = (traces + offset * STEP_128) & MASK_128
        span = (spans + offset * STEP_OFFSET + fence * STEP_FENCE) & MASK_64
        ids = hex((BEFORE_IDS | trace) << 64 | span)
        end_us = end_ms * 1000
        start_us = end_us if fence > end_us else fence  # noqa: FURB136 - a call costs more
        links = "" if parent is None else link(parent)
        found.append(
            f"{a}{ids[3:35]}{b}{ids[35:]}{c}{start_us}{d}{end_ms}{e}{offset}{f}{offset}{g}{attempt}"
            f"{h}{fence}{i}{more}{DEADLINE}{due_ms}{PUBLISHED}{sent_ms}{END}{holder}{j}{links}{k}"
        )
    return found
