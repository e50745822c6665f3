"""The injector's own metrics. They count opted-in pods only: API servers send it no others."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class InjectMetrics:
    """All metrics, in their own registry. Every label value is a constant of ackd, so their number
    is bounded.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self.pods = Counter(
            "ackd_inject_pods",
            "Opted-in pods that were decided about, by reason: injected, already-there, "
            "bad-annotation, clash, not-wanted, bad-review.",
            ("reason",),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "ackd_inject_seconds",
            "Time from a whole request to its answer.",
            registry=self.registry,
            buckets=SECONDS,
        )
        self.certificate_end = Gauge(
            "ackd_inject_certificate_end_seconds",
            "When the certificate in use ends, in Unix time; 0 with files of somebody else's.",
            registry=self.registry,
        )
        self.trusted = Gauge(
            "ackd_inject_trusted",
            "1 when the API server has been told our authority.",
            registry=self.registry,
        )
        self.trust_errors = Gauge(
            "ackd_inject_trust_errors",
            "Times that keeping the certificate or the bundle failed since the start.",
            registry=self.registry,
        )
        self.events_dropped = Gauge(
            "ackd_inject_events_dropped",
            "Events that were not written since the start.",
            registry=self.registry,
        )
        self.old_pods = Gauge(
            "ackd_inject_old_pods",
            "Pods whose sidecar was put in with other settings or another version than now.",
            registry=self.registry,
        )
        self.info = Gauge(
            "ackd_inject_info",
            "1; the version and hash that new pods get.",
            ("version", "hash"),
            registry=self.registry,
        )
