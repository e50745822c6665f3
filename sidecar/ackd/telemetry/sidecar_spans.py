"""Spans about the sidecar itself: its start and stop, its status, what a crash has lost.

They are rare, and made by the SDK (`ackd.telemetry.own`), which is loaded when traces are on only.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ackd import __version__
from ackd.telemetry.span_buffer import SCOPE
from ackd.telemetry.spans import SpanEvent, text
from ackd.telemetry.tracecount import LastRun, TraceCounts
from ackd.telemetry.traceway import TraceBatch

if TYPE_CHECKING:
    from ackd.telemetry.own import OwnSpans


class SidecarSpans:
    """`resource`: what all spans of this run say of the sidecar, as text. `boot` names the run."""

    def __init__(self, identity: str, boot: str) -> None:
        self._identity = identity
        self._boot = boot
        self._made: OwnSpans | None = None
        self._count = 0
        self.resource = _as_text(self._described(boot))

    def open(self, put: Callable[[str], None]) -> None:
        """Load the SDK; `put` gets each span. Until then `add` does nothing."""
        from ackd.telemetry.own import OwnSpans  # noqa: PLC0415  only when traces are on

        self._made = OwnSpans(self._described(self._boot), put)

    def add(
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
        """Make a span about the sidecar itself; the parameters are those of `Traces.own`."""
        if self._made is None:
            return
        self._count += 1
        now_us = _now_us()
        self._made.tell(
            f"{name} {of}",
            {"ackd.event": name, **(attributes or {})},
            (start_us or now_us, now_us),
            f"{name}/{once or f'{self._boot}/{self._count}'}",
            error=error,
            caller=caller,
        )

    def status(self, counts: TraceCounts, files_deleted: int) -> None:
        """Report how many spans were written and dropped so far."""
        more = {
            "ackd.spans.written": sum(counts.written),
            "ackd.spans.dropped": sum(counts.dropped),
        }
        more |= _by_event("dropped", {e: counts.dropped[e] for e in SpanEvent})
        if files_deleted:
            more["ackd.files.deleted"] = files_deleted
        self.add("status", more)

    def last_run(self, last: LastRun, put: Callable[[TraceBatch], object]) -> None:
        """Report what the previous run lost when it was killed, under that run's name."""
        from ackd.telemetry.own import OwnSpans  # noqa: PLC0415  only when traces are on

        more: dict[str, str | int] = {
            "ackd.event": "status",
            "ackd.spans.written": last.written,
            "ackd.spans.dropped": sum(last.dropped.values()) + sum(last.lost.values()),
        }
        more |= _by_event("lost", last.lost) | _by_event("dropped", last.dropped)
        described = self._described(last.boot)
        events = [int(event is SpanEvent.OWN) for event in SpanEvent]

        def pack(span: str) -> None:
            put(TraceBatch(_as_text(described), SCOPE, [span], events))

        now_us = _now_us()
        OwnSpans(described, pack).tell("status ackd", more, (now_us, now_us), f"lost/{last.boot}")

    def _described(self, boot: str) -> dict[str, str]:
        return {
            "service.name": "ackd",
            "service.version": __version__,
            "service.instance.id": self._identity,
            "host.name": platform.node(),
            "ackd.boot.id": boot,
        }


def _as_text(resource: Mapping[str, str]) -> str:
    return ",".join(text(key, value) for key, value in resource.items())


def _by_event(fate: str, counts: Mapping[SpanEvent, int]) -> dict[str, int]:
    """Attributes for the events with a count above 0."""
    return {f"ackd.spans.{fate}.{e.name.lower()}": count for e, count in counts.items() if count}


def _now_us() -> int:
    return time.time_ns() // 1000
