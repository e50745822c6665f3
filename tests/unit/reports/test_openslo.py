"""OpenSLO v1: what is read means what it says; what is not honoured is a mistake in its place."""

from datetime import datetime
from pathlib import Path

import pytest

from ackd_reports.targets import Target, TargetsError
from ackd_reports.targets_file import load
from ackd_reports.windows import Calendar, Rolling
from ackd_reports.words import DAY_US, HOUR_US, MICRO

OPENSLO = """\
apiVersion: openslo/v1
kind: Service
metadata: {name: orders}
spec: {description: whatever it says}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: orders-in-time, labels: {team: shop}}
spec:
  description: for the shop
  service: orders
  budgetingMethod: Occurrences
  timeWindow: [{duration: 4w, isRolling: true}]
  indicator:
    metadata: {name: time-to-ack}
    spec:
      thresholdMetric:
        metricSource: {type: ackd, spec: {metric: time_to_ack, topic: orders}}
  objectives: [{op: lte, value: 30, target: 0.99}]
"""
SHARED = """\
apiVersion: openslo/v1
kind: SLI
metadata: {name: delivered}
spec:
  ratioMetric:
    rawType: success
    raw:
      metricSource: {type: ackd, spec: {metric: delivered, finished_within: 2h, least_messages: 5}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: nothing-given-up}
spec:
  service: orders
  budgetingMethod: Occurrences
  timeWindow:
    - duration: 1M
      calendar: {startTime: 2026-01-01 00:00:00, timeZone: Europe/Berlin}
  indicatorRef: delivered
  objectives:
    - {displayName: most, target: 0.99}
    - {displayName: nearly all, targetPercent: 99.9}
"""


def read(tmp_path: Path, text: str) -> tuple[Target, ...]:
    """The targets of a file with this text."""
    path = tmp_path / "t.yaml"
    path.write_text(text)
    return load(path)


def test_a_threshold(tmp_path: Path) -> None:
    window, only = Rolling(28 * DAY_US), (("topic", "orders"),)
    wanted = Target("orders-in-time", "time_to_ack", 0.99, 30 * MICRO, window, only)
    assert read(tmp_path, OPENSLO) == (wanted,)


def test_a_ratio_by_reference_over_a_calendar(tmp_path: Path) -> None:
    window = Calendar(1, "M", datetime(2026, 1, 1), "Europe/Berlin")  # noqa: DTZ001 -- local

    def wanted(name: str, objective: float) -> Target:
        return Target(
            name,
            "delivered",
            objective,
            window=window,
            finished_within_us=2 * HOUR_US,
            least_messages=5,
        )

    assert read(tmp_path, SHARED) == (wanted("most", 0.99), wanted("nearly all", 0.999))


MISTAKES = [
    ("topic: orders", "tpoic: orders", "18: spec.indicator.spec.thresholdMetric", "tpoic: not"),
    (
        "  service: orders\n",
        "  alertPolicies: [x]\n  service: orders\n",
        "11",
        "alertPolicies: not",
    ),
    ("isRolling: true", "isRolling: false", "13: spec.timeWindow[0].calendar", "is missing"),
    (
        "isRolling: true",
        "calendar: {startTime: 2026-01-01 00:00:00, timeZone: Mars/Base}",
        "13: spec.timeWindow",
        'no time zone "Mars/Base"',
    ),
    (
        "isRolling: true",
        "calendar: {startTime: 2026-01-01 00:00:00, timezone: UTC}",
        "13: spec.timeWindow[0].calendar.timezone",
        "not honoured",
    ),
    ("isRolling: true", "isRolling: true, calendar: {}", "13: spec.timeWindow[0]", "not rolling"),
    ("duration: 4w", "duration: 1M", "13: spec.timeWindow", "rolling window has no fixed"),
    ("}]\n  indicator:", "}, {duration: 1d}]\n  indicator:", "13: spec.timeWindow", "exactly one"),
    ("target: 0.99", "target: 0.99, timeSliceTarget: 0.9", "19", "timeSliceTarget: not honoured"),
    ("target: 0.99", "target: 0.99, compositeWeight: 2", "19", "compositeWeight: not honoured"),
    ("target: 0.99", "target: 0.99, indicatorRef: x", "19", "indicatorRef: not honoured"),
    ("target: 0.99", "target: 0.99, targetPercent: 99", "19: spec.objectives[0]", "one of target"),
    ("target: 0.99", "goal: 0.99", "19: spec.objectives[0].goal", "not honoured"),
    ("op: lte", "op: gt", "19: spec.objectives[0].op", "only lte"),
    ("value: 30", "value: soon", "19: spec.objectives[0].value", "number of seconds"),
    (
        "  objectives: [{",
        "  objectives: [{op: lte, value: 9, target: 0.5}, {",
        "19",
        "one objective",
    ),
    ("Occurrences", "Timeslices", "12: spec.budgetingMethod", "only Occurrences"),
    ("  budgetingMethod: Occurrences\n", "", "9: spec.budgetingMethod", "is missing"),
    ("openslo/v1\nkind: SLO", "openslo/v2alpha\nkind: SLO", "6: apiVersion", "openslo/v1"),
    ("kind: Service", "kind: AlertPolicy", "2: kind", "AlertPolicy"),
    ("type: ackd", "type: prometheus", "18", "only ackd"),
    ("type: ackd", "type: ackd, metricSourceRef: x", "18", "metricSourceRef: not honoured"),
    ("metric: time_to_ack", "metric: speed", "18", "'speed'"),
    ("  indicator:\n", "  indicatorRef: x\n  indicator:\n", "9: spec", "one of indicator"),
    ("  service: orders\n", "  service: orders\n  service: mail\n", "12", "is there twice"),
    ("metadata: {name: orders-in-time,", "metadata: {nmae: x,", "8: metadata.nmae", "not honoured"),
]


@pytest.mark.parametrize(("was", "becomes", "place", "told"), MISTAKES)
def test_what_cannot_be_honoured_is_a_mistake_with_its_place(
    tmp_path: Path, was: str, becomes: str, place: str, told: str
) -> None:
    assert was in OPENSLO
    with pytest.raises(TargetsError) as found:
        read(tmp_path, OPENSLO.replace(was, becomes, 1))
    lines = [line for line in str(found.value).splitlines() if f"t.yaml:{place}" in line]
    assert any(told in line for line in lines), found.value


def test_an_indicator_of_another_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(
        TargetsError, match=r't.yaml:19: spec.indicatorRef: there is no SLI "other"'
    ):
        read(tmp_path, SHARED.replace("indicatorRef: delivered", "indicatorRef: other"))


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    wrong = OPENSLO.replace("topic:", "tpoic:").replace("op: lte", "op: gt").replace("4w", "4x")
    with pytest.raises(TargetsError) as found:
        read(tmp_path, wrong)
    assert len(str(found.value).splitlines()) == 3
