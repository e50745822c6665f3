"""Makes the families of metrics and registers them, in the order of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
)

from ackd.telemetry.counter import Counter
from ackd.telemetry.family import Family
from ackd.telemetry.histogram import Histogram

LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
AnyFamily = Family[Counter] | Family[Gauge] | Family[Histogram]


class FamilyRegistry:
    """`collectors`: what a scrape reads, figures of the process included. `families`: ours."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.collectors = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.collectors)
        self.families: list[AnyFamily] = []

    def counter(self, name: str, text: str, labels: Sequence[str]) -> Family[Counter]:
        parent = Counter(name, text, labels)
        self.collectors.register(parent)
        family = Family(parent, "counter", f"{name}_total", text, labels)
        self.families.append(family)
        return family

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> Family[Gauge]:
        parent = Gauge(name, text, labels, registry=self.collectors)
        family = Family(parent, "gauge", name, text, labels)
        self.families.append(family)
        return family

    def histogram(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float] = LATENCY_S
    ) -> Family[Histogram]:
        parent = Histogram(name, text, labels, buckets)
        self.collectors.register(parent)
        family = Family(parent, "histogram", name, text, labels)
        self.families.append(family)
        return family
