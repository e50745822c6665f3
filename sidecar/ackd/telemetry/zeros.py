"""Starts counters that alert rules watch at 0, not at their first event.

Prometheus' `increase()` sees how a series grows, not how it appears. A message that the broker
deletes once in a year would raise no alert, because its counter would appear with the value 1.
"""

from __future__ import annotations

from itertools import product

from ackd.core.record.settles import SettleVerb
from ackd.telemetry.metrics import FOR_PEERS, OWN, THROUGH_PEERS, Metrics


def begin(metrics: Metrics, subscription: str) -> None:
    """Create the series of one subscription with the value 0."""
    for family in (
        metrics.late_acks,
        metrics.lease_expiries,
        metrics.expired_by_retention,
        metrics.vanished,
        metrics.copies_ignored,
        metrics.log_cuts,
    ):
        family.at(subscription)
    metrics.claims.at(subscription, "aside")
    for reason in ("slow-reader", "malformed"):
        metrics.log_dropped.at(reason)
    for verb in SettleVerb:
        metrics.lost_settles.at(subscription, verb.value)
    for decision in ("accepted", "refused"):
        metrics.external_commits.at(subscription, decision)
    for way in (OWN, FOR_PEERS, THROUGH_PEERS):
        metrics.served.at(subscription, way)
    for outcome in ("done", "failed"):
        metrics.commits.at(subscription, outcome)
    for reason in ("age", "span", "delay", "bytes"):
        metrics.retry_topic_moves.at(subscription, reason)
    for topic, outcome in product(("retry-topic", "dead-letter-topic"), ("stored", "failed")):
        metrics.copies.at(subscription, topic, outcome)
