"""Metrics: bounded series (I8), names by Prometheus' rules, an exposition that can be parsed."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from ackd.telemetry import log
from ackd.telemetry.family import OTHER, SERIES_MAX
from ackd.telemetry.metrics import Metrics

# What may stand in a label: names from the configuration, routes, words of our own.
LABELS = {"subscription", "topic", "partition", "broker", "port", "route", "method", "status"} | {
    *("outcome", "kind", "do", "call", "reason", "decision", "version", "identity", "exporter"),
    "retry_topic",
    "way",
    "direction",
}


def test_names_follow_the_rules_and_every_metric_is_explained() -> None:
    for family in Metrics().families:
        assert family.name.startswith("ackd_")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.text.endswith(".")
        assert set(family.labels) <= LABELS, family.name
    names = [family.name for family in Metrics().families]
    assert len(names) == len(set(names))


def test_series_are_bounded_and_the_rest_is_counted_together() -> None:
    metrics = Metrics()
    for number in range(SERIES_MAX + 500):
        metrics.late_acks.at(f"s{number}").inc()
    body, _ = metrics.render("")
    samples = [line for line in body.splitlines() if line.startswith(b"ackd_late_acks_total{")]
    assert len(samples) == SERIES_MAX + 1
    assert f'ackd_late_acks_total{{subscription="{OTHER}"}} 500.0'.encode() in samples


def test_a_series_that_is_dropped_is_gone_and_can_come_back() -> None:
    metrics = Metrics()
    metrics.lag.at("orders", "t", "3", "false").set(7)
    metrics.lag.drop("orders", "t", "3", "false")
    metrics.lag.drop("orders", "t", "4", "false")
    assert b'partition="3"' not in metrics.render("")[0]
    metrics.lag.at("orders", "t", "3", "false").set(8)
    assert (
        b'partition="3",retry_topic="false",subscription="orders",topic="t"} 8.0'
        in metrics.render("")[0]
    )


def test_wrong_labels_are_a_bug() -> None:
    with pytest.raises(ValueError, match="labels"):
        Metrics().lag.at("orders")


@pytest.mark.parametrize(
    "accept", ["", "text/plain", "application/openmetrics-text; version=1.0.0"]
)
def test_the_exposition_can_be_parsed(accept: str) -> None:
    metrics = Metrics()
    metrics.before_scrape(lambda: metrics.store_up.at().set(1))
    metrics.settles.at("orders", "ack", "acked").inc(3)
    metrics.store_call_seconds.at("settle").observe(0.002)
    body, content_type = metrics.render(accept)
    parse = open_metrics if "openmetrics" in content_type else plain_text
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parse(body.decode())
        for sample in family.samples
    }
    assert samples["ackd_settles_total", "ack", "acked", "orders"] == 3
    assert samples["ackd_store_up",] == 1
    assert samples["ackd_store_call_seconds_count", "settle"] == 1
    assert any(name[0] == "process_resident_memory_bytes" for name in samples)


def test_log_lines_that_were_dropped_are_counted_once() -> None:
    metrics = Metrics()
    metrics.render("")
    before = metrics.log_dropped.at("slow-reader").value
    log.DROPPED["slow-reader"] += 3
    for _ in range(2):
        metrics.render("")
    after = metrics.log_dropped.at("slow-reader").value
    assert after - before == 3


def test_two_processes_worth_of_metrics_do_not_share_anything() -> None:
    one, two = Metrics(), Metrics()
    one.store_outages.at().inc()
    assert b"ackd_store_outages_total 1.0" in one.render("")[0]
    assert b"ackd_store_outages_total 0.0" in two.render("")[0]
