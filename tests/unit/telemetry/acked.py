"""Traces of a sidecar that does nothing else: spans of acks, and what became of them."""

from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ackd.config.traces import TraceSettings
from ackd.telemetry.metrics import Metrics
from ackd.telemetry.spans import MessageSpans, SpanEvent, SpanPlace, link
from ackd.telemetry.traces import Traces

PLACE = SpanPlace("kafka", "c", "work", "work", "orders", bytes(16), 0)
LIVES = MessageSpans(PLACE, 0, "")


def acks(count: int, start: int = 0) -> list[str]:
    parent = link(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    return [
        LIVES.span(SpanEvent.ACK, o, 1, 1_000_000, 1_000_000, 2_000, "", parent)
        for o in range(start, start + count)
    ]


def traces(folder: Path, **more: object) -> Traces:
    settings: dict[str, Any] = {"files": True, "flush_ms": 20} | more
    return Traces(TraceSettings(**settings), "one", folder, Metrics())


def metric(of: Traces, outcome: str, way: str = "file") -> float:
    body, _ = of.exports._metrics.render("")
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            if sample.labels == {"exporter": way, "outcome": outcome}:
                return sample.value
    return 0


def hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*"))
