"""Targets: two forms of the same promise, and mistakes that are told all at once."""

from pathlib import Path

import pytest

from ackd_reports.targets import Target, TargetsError, duration_text, duration_us, load
from ackd_reports.words import DAY_US, MICRO

TOML = """
[[target]]
name = "orders in time"
measure = "time_to_ack"
within = "30s"
objective = 0.99
window = "28d"
topic = "orders"
"""
OPENSLO = """
apiVersion: openslo/v1
kind: Service
metadata: {name: orders}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: orders in time}
spec:
  service: orders
  budgetingMethod: Occurrences
  timeWindow: [{duration: 28d, isRolling: true}]
  indicator:
    metadata: {name: time-to-ack}
    spec:
      thresholdMetric:
        metricSource: {type: ackd, spec: {metric: time_to_ack, topic: orders}}
  objectives: [{op: lte, value: 30, target: 0.99}]
"""


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    short, long = tmp_path / "t.toml", tmp_path / "t.yaml"
    short.write_text(TOML)
    long.write_text(OPENSLO)
    only = (("topic", "orders"),)
    wanted = Target("orders in time", "time_to_ack", 0.99, 30 * MICRO, 28 * DAY_US, only)
    assert load(short) == load(long) == (wanted,)
    assert wanted.sentence() == (
        "99 % of messages are acked within 30 s of being published (topic orders)"
    )


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(
        '[[target]]\nname = "a"\nmeasure = "speed"\nobjective = 1\ncolour = "red"\n'
        '[[target]]\nname = "a"\nmeasure = "wait"\nobjective = 0.9\nwithin = "soon"\n'
        '[[target]]\nname = "b"\nmeasure = "delivered"\nobjective = 0.9\nwithin = "3s"\n'
    )
    with pytest.raises(TargetsError) as found:
        load(path)
    told = str(found.value)
    for part in ("colour", "'speed'", "objective = 1", '"soon"', "delivered has no duration"):
        assert part in told
    assert all(line.startswith(str(path)) for line in told.splitlines())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("type: ackd", "type: prometheus"), "metricSource.type"),
        (("op: lte", "op: gt"), "only lte"),
        (("Occurrences", "Timeslices"), "budgetingMethod"),
        (("isRolling: true", "isRolling: false"), "only rolling"),
        (("openslo/v1", "openslo/v2alpha"), "apiVersion"),
    ],
)
def test_what_openslo_can_say_and_we_cannot_is_a_mistake(
    tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(OPENSLO.replace(*change))
    with pytest.raises(TargetsError, match=told):
        load(path)


def test_an_empty_file_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text("")
    with pytest.raises(TargetsError, match="no target"):
        load(path)


@pytest.mark.parametrize(
    ("text", "duration"),
    [("250ms", 250_000), ("30s", 30 * MICRO), ("1h30m", 5400 * MICRO), ("4w", 28 * DAY_US)],
)
def test_durations(text: str, duration: int) -> None:
    assert duration_us(text) == duration


@pytest.mark.parametrize("text", ["", "5", "s", "1h 30m", "-3s", "1y"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        duration_us(text)


def test_durations_for_people() -> None:
    told = [
        duration_text(us) for us in (0, 12_340, 1_500_000, 90 * MICRO, 3600 * MICRO, 3 * DAY_US)
    ]
    assert told == ["0 ms", "12.3 ms", "1.5 s", "90 s", "1 h", "3 d"]
