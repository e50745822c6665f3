"""Which exporters there are, whose losses count, and what the metrics say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ackd.config.traces import TraceSettings
from ackd.telemetry.metrics import Metrics
from ackd.telemetry.spans import SpanEvent
from ackd.telemetry.trace_exports import TraceExports
from ackd.telemetry.traceway import TraceBatch

ROOM = 10
BOTH = {"files": True, "otlp_url": "http://127.0.0.1:1/v1/traces"}


def opened(folder: Path, **settings: Any) -> TraceExports:
    """Exporters whose threads do not run: what they are offered stays with them."""
    exports = TraceExports(TraceSettings(buffer_max=ROOM, **settings), "one", folder, Metrics())
    exports.open(lambda *_: None)
    return exports


def batch(spans: int) -> TraceBatch:
    return TraceBatch("", "", ["span"] * spans, [0] * len(SpanEvent))


def full(exports: TraceExports, way: str) -> float:
    """What the metrics say that had no room."""
    exports.fill_metrics()
    return exports._metrics.trace_spans.at(way, "full").value


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"files": True}, ["file"]),
        ({"files": False, "otlp_url": "http://127.0.0.1:1/v1/traces"}, ["otlp"]),
        (BOTH, ["file", "otlp"]),
    ],
)
def test_files_come_first(tmp_path: Path, settings: dict[str, Any], names: list[str]) -> None:
    exports = opened(tmp_path, **settings)
    assert [each.name for each in exports.exporters] == names


def test_each_exporter_gets_each_batch(tmp_path: Path) -> None:
    exports = opened(tmp_path, **BOTH)
    assert exports.offer(batch(ROOM))
    assert [each._put for each in exports.exporters] == [ROOM, ROOM]


@pytest.mark.parametrize("has_no_room", ["file", "otlp"])
def test_the_losses_of_the_first_count(tmp_path: Path, has_no_room: str) -> None:
    exports = opened(tmp_path, **BOTH)
    (exporter,) = (each for each in exports.exporters if each.name == has_no_room)
    assert exporter.offer(batch(ROOM))
    assert exports.offer(batch(3)) == (has_no_room != "file")
    assert full(exports, has_no_room) == 3
    assert exports.offer(batch(3)) == (has_no_room != "file")
    assert full(exports, has_no_room) == 6


def test_without_an_exporter_nothing_is_lost(tmp_path: Path) -> None:
    exports = TraceExports(TraceSettings(), "one", tmp_path, Metrics())
    assert exports.offer(batch(1))
