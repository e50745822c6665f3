"""Metrics of publishing, of outboxes and of deduplication: a part of `metrics`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from prometheus_client import Gauge

from ackd.telemetry.counter import Counter
from ackd.telemetry.family import Family
from ackd.telemetry.histogram import Histogram


# tidy: long-class attributes=13 -- a part of the catalogue: an attribute for each metric
class OutboxMetrics(ABC):
    """Defined by `ackd.telemetry.metrics.Metrics`, which says how a family is made."""

    @abstractmethod
    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Family[Counter]: ...

    @abstractmethod
    def _gauge(self, name: str, text: str, labels: Sequence[str]) -> Family[Gauge]: ...

    @abstractmethod
    def _histogram(self, name: str, text: str, labels: Sequence[str]) -> Family[Histogram]: ...

    def define_publishing(self) -> None:
        """Direct publishing, without an outbox."""
        self.published = self._counter(
            "ackd_published",
            "Messages published, by outcome: stored, accepted (into the outbox), refused, "
            "not-stored, unknown, pressure.",
            ("broker", "outcome"),
        )
        self.publish_seconds = self._histogram(
            "ackd_publish_seconds", "How long a publish took, retries included.", ("broker",)
        )
        self.publish_retries = self._counter(
            "ackd_publish_retries", "Further tries after a first one failed.", ("broker",)
        )

    def define_outbox(self) -> None:
        """Messages accepted into an outbox. Each sidecar that shares an outbox reports gauges of
        the whole.
        """
        self.outbox_accepted = self._counter(
            "ackd_outbox_accepted", "Messages accepted into the outbox.", ("broker",)
        )
        self.outbox_refused = self._counter(
            "ackd_outbox_refused",
            "Requests refused because the outbox is full: messages, bytes.",
            ("broker", "reason"),
        )
        self.outbox_sent = self._counter(
            "ackd_outbox_sent",
            "Tries to send from the outbox, by outcome: sent, refused, not-stored, unknown (sent "
            "again, perhaps twice), pressure.",
            ("broker", "outcome"),
        )
        self.outbox_lateness = self._histogram(
            "ackd_outbox_lateness_seconds",
            "How long after its due time a message was with the broker.",
            ("broker",),
        )
        self.outbox_waiting = self._gauge(
            "ackd_outbox_waiting", "Messages in the outbox, delayed ones too.", ("broker",)
        )
        self.outbox_due = self._gauge(
            "ackd_outbox_due",
            "Messages in it that should be at the broker by now. Alert when that stays above 0.",
            ("broker",),
        )
        self.outbox_bytes = self._gauge(
            "ackd_outbox_bytes", "Bytes of it (bound: outbox_bytes_max).", ("broker",)
        )
        self.outbox_failed = self._gauge(
            "ackd_outbox_failed",
            "Messages that the broker refused and that wait for somebody. Alert on it.",
            ("broker",),
        )

    def define_dedup(self) -> None:
        """Repeats that deduplication settled without delivery."""
        of = "subscription"
        self.dedup_repeats = self._counter(
            "ackd_dedup_repeats",
            "Messages settled without delivery: their deduplication key was acked before.",
            (of,),
        )
        self.dedup_skipped = self._counter(
            "ackd_dedup_skipped",
            "Messages for which a repeat may slip through, by why: store (it did not answer), full "
            "(no room), forgotten (the body was gone at the ack).",
            (of, "reason"),
        )
