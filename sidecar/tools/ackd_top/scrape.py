"""PURE: what a scrape of `/metrics` says of each subscription."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ackd.core.record.settles import OF_VERB

GAUGES = {
    "ackd_lag_messages": "lag",
    "ackd_ready": "ready",
    "ackd_in_flight": "in_flight",
    "ackd_waiting": "waiting",
    "ackd_retry_topic_messages": "in_retry_topic",
    "ackd_copies_in_progress": "copies",
    "ackd_waiters": "waiters",
    "ackd_streams": "streams",
    "ackd_partitions_owned": "partitions",
}
"""Added up over a subscription's partitions."""

OLDEST = "ackd_oldest_unfinished_age_seconds"
OUT = "ackd_deliveries_total"
SETTLES = "ackd_settles_total"
EXPIRIES = "ackd_lease_expiries_total"
COPIES = "ackd_copies_total"
TAKEN = "ackd_dead_letters_total"
_FAILED = frozenset((rule.do.value, rule.status.value) for rule in OF_VERB.values() if rule.failure)


@dataclass(slots=True)
class SubscriptionFigures:
    """One subscription at one sidecar. Counters count since that process began.

    `dead`: dead-lettered, less what operations removed. `counted` False: the figures are from the
    data port, which reports gauges only.
    """

    gauges: dict[str, float] = field(default_factory=dict)
    oldest_s: float = 0
    out: float = 0
    acked: float = 0
    failed: float = 0
    dead: float = 0
    counted: bool = True


def read(text: str) -> dict[str, SubscriptionFigures]:
    """By subscription. Raises ValueError on what is no exposition."""
    found: dict[str, SubscriptionFigures] = defaultdict(SubscriptionFigures)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.labels.get("subscription")
            if name is not None:
                _add(found[name], sample.name, sample.labels, sample.value)
    return dict(found)


def _add(figures: SubscriptionFigures, name: str, labels: Mapping[str, str], value: float) -> None:
    gauge = GAUGES.get(name)
    if gauge == "lag" and labels.get("retry_topic") == "true":
        return  # copies that wait there on purpose; "in retry topic" counts them
    if gauge is not None:
        figures.gauges[gauge] = figures.gauges.get(gauge, 0) + value
    elif name == OLDEST:
        figures.oldest_s = max(figures.oldest_s, value)
    elif name == OUT:
        figures.out += value
    elif name == EXPIRIES:
        figures.failed += value
    elif name == SETTLES:
        if labels["status"] == "acked":
            figures.acked += value
        elif (labels["do"], labels["status"]) in _FAILED:
            figures.failed += value
    elif name == COPIES:
        if labels["topic"] == "dead-letter-topic" and labels["outcome"] == "stored":
            figures.dead += value
    elif name == TAKEN and labels["outcome"] != "failed":
        figures.dead -= value


def of_lag(partitions: Iterable[Mapping[str, Any]], oldest_s: float) -> SubscriptionFigures:
    """The same figures from the answers of the data port, which has no metrics."""
    owned = [each for each in partitions if each["watermark"] >= 0]
    gauges = {
        "lag": sum(
            max(each["end"] - each["watermark"], 0) for each in owned if not each["retry_topic"]
        ),
        "ready": sum(each["ready"] for each in owned),
        "in_flight": sum(each["leased"] for each in owned),
        "waiting": sum(each["retrying"] for each in owned),
        "partitions": len(owned),
    }
    return SubscriptionFigures(dict(gauges), oldest_s, counted=False)
