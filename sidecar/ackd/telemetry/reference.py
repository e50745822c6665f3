"""`docs/reference/metrics.md`, made from the metrics. A test fails when it is old."""

from __future__ import annotations

from ackd.telemetry.family import OTHER, SERIES_MAX
from ackd.telemetry.metrics import Metrics

INTRO = f"""\
# Metrics

This page is made from the source: `ackd docs metrics`. The admin port serves them at `/metrics`
(Prometheus text or OpenMetrics, by `Accept`), with the usual `process_` metrics of the sidecar
beside them. A metric has at most {SERIES_MAX} label sets; further ones are counted under `{OTHER}`.

| name | kind | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Render the Markdown page of all metrics."""
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(f'`{each}`' for each in family.labels)} "
        f"| {family.text} |"
        for family in Metrics().families
    ]
    return INTRO + "\n".join(rows) + "\n"
