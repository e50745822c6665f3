"""Metrics of publishing: messages sent directly, and those accepted into an outbox."""

from __future__ import annotations

from ackd.telemetry.family_registry import FamilyRegistry


class PublishingMetrics:
    """Each sidecar that shares an outbox reports the gauges of the whole outbox."""

    def __init__(self, made: FamilyRegistry) -> None:
        self.published = made.counter(
            "ackd_published",
            "Messages published, by outcome: stored, accepted (into the outbox), refused, "
            "not-stored, unknown, pressure.",
            ("broker", "outcome"),
        )
        self.publish_seconds = made.histogram(
            "ackd_publish_seconds", "How long a publish took, retries included.", ("broker",)
        )
        self.publish_retries = made.counter(
            "ackd_publish_retries", "Further tries after a first one failed.", ("broker",)
        )
        self.outbox_accepted = made.counter(
            "ackd_outbox_accepted", "Messages accepted into the outbox.", ("broker",)
        )
        self.outbox_refused = made.counter(
            "ackd_outbox_refused",
            "Requests refused because the outbox is full: messages, bytes.",
            ("broker", "reason"),
        )
        self.outbox_sent = made.counter(
            "ackd_outbox_sent",
            "Tries to send from the outbox, by outcome: sent, refused, not-stored, unknown (sent "
            "again, perhaps twice), pressure.",
            ("broker", "outcome"),
        )
        self.outbox_lateness = made.histogram(
            "ackd_outbox_lateness_seconds",
            "How long after its due time a message was with the broker.",
            ("broker",),
        )
        self.outbox_waiting = made.gauge(
            "ackd_outbox_waiting", "Messages in the outbox, delayed ones too.", ("broker",)
        )
        self.outbox_due = made.gauge(
            "ackd_outbox_due",
            "Messages in it that should be at the broker by now. Alert when that stays above 0.",
            ("broker",),
        )
        self.outbox_bytes = made.gauge(
            "ackd_outbox_bytes", "Bytes of it (bound: outbox_bytes_max).", ("broker",)
        )
        self.outbox_failed = made.gauge(
            "ackd_outbox_failed",
            "Messages that the broker refused and that wait for somebody. Alert on it.",
            ("broker",),
        )
