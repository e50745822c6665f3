"""Files of targets (OpenSLO and plain): targets, or TargetsError with a place for each mistake."""

import contextlib
from collections.abc import Iterator

from ackd_reports import openslo
from ackd_reports.targets import TargetsError


def run(data: bytes) -> None:
    """Read it as OpenSLO."""
    mistakes: list[str] = []
    with contextlib.suppress(TargetsError):
        openslo.targets_of(data.decode("utf-8", "replace"), "targets.yaml", mistakes)
        for each in mistakes:
            assert each.startswith("targets.yaml"), each


def seeds() -> Iterator[bytes]:
    """One of each kind."""
    yield b"""apiVersion: openslo/v1
kind: SLO
metadata: {name: fast}
spec:
  service: shop
  indicator:
    metadata: {name: i}
    spec:
      thresholdMetric: {metricSource: {type: ackd, spec: {metric: total}}}
  timeWindow: [{duration: 1d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{op: lte, value: 5, target: 0.99}]
"""
    yield b"""apiVersion: openslo/v1
kind: SLI
metadata: {name: i}
spec:
  ratioMetric: {rawType: success, raw: {metricSource: {type: ackd, spec: {metric: delivered}}}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: all}
spec: {indicatorRef: i, budgetingMethod: Occurrences, objectives: [{target: 0.999}]}
"""
    yield b"kind: Service\n---\n- 1\n---\n&a [*a]\n"
