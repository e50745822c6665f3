"""Every counter whose growth an alert rule watches is there before its first event."""

import re

from ackd.telemetry import zeros
from ackd.telemetry.metrics import Metrics
from tests.support.paths import REPO

RULES = REPO / "helm" / "ackd" / "rules" / "ackd.rules.yaml"
_GROWTH = re.compile(r"increase\((ackd_\w+)(?:\{([^}]*)\})?\[")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
ELSEWHERE = {"ackd_trace_spans_total": "`TraceExports.fill_metrics` names every outcome each time"}
"""Counters that begin at 0 by other means."""


def test_a_first_event_is_seen_as_growth() -> None:
    metrics = Metrics()
    zeros.begin(metrics, "orders")
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    watched = {(name, labels) for name, labels in _GROWTH.findall(RULES.read_text())}
    assert len(watched) > 10
    missing = {
        (name, labels)
        for name, labels in watched
        if name not in ELSEWHERE
        and not any(
            each.name == name and dict(_LABEL.findall(labels)).items() <= each.labels.items()
            for each in samples
        )
    }
    assert not missing
