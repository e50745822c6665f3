"""The alert rules: each fires on series that mean trouble, none on those of a healthy sidecar."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from ackd.telemetry.metrics import Metrics
from tests.support.paths import REPO
from tests.support.prometheus import RULES, missing, promtool, rules
from tests.support.require import require

RUNBOOK = REPO / "docs" / "operate" / "runbook.md"
SUB = '{job="a",instance="i",subscription="s"}'
PART = '{job="a",instance="i",subscription="s",topic="t",partition="0",retry_topic="false"}'
COPIES = '{job="a",instance="i",subscription="s",topic="r",partition="0",retry_topic="true"}'
OF_SUB = {"job": "a", "subscription": "s"}
OF_JOB = {"job": "a"}
OF_SIDECAR = {"job": "a", "instance": "i"}
OF_PART = {
    **OF_SIDECAR, "subscription": "s", "topic": "t", "partition": "0", "retry_topic": "false"
}  # fmt: skip
METRIC = re.compile(r"\backd_\w+")


def with_labels(labels: str, **more: str) -> str:
    """`{job="a"}` and more of them."""
    return labels[:-1] + "".join(f',{name}="{value}"' for name, value in more.items()) + "}"


@dataclass(frozen=True)
class Case:
    """Series as promtool writes them (start+stepxcount, a minute each), and the labels of the
    alert.
    """

    series: dict[str, str]
    labels: dict[str, str]
    at: str = "60m"


def rising(metric: str, labels: str, step: int = 1) -> dict[str, str]:
    """A counter that grows with every minute."""
    return {f"{metric}{labels}": f"0+{step}x120"}


def buckets(metric: str, labels: str, le: str) -> dict[str, str]:
    """A histogram in which everything lies between `le` and the next bound, which is 30."""
    return {
        f"{metric}_bucket{with_labels(labels, le=le)}": "0x120",
        f"{metric}_bucket{with_labels(labels, le='30')}": "0+60x120",
        f"{metric}_bucket{with_labels(labels, le='+Inf')}": "0+60x120",
    }


SIDECAR = '{job="a",instance="i"}'
ABSENT = "AckdNoSidecar"
CASES: dict[str, Case] = {
    "AckdNotReady": Case(
        {f"ackd_readiness{with_labels(SIDECAR, reason='store')}": "1x30 0x60"},
        {**OF_SIDECAR, "reason": "store"},
    ),
    "AckdReadinessWarning": Case(
        {f"ackd_readiness_warnings{with_labels(SIDECAR, reason='store')}": "0x30 1x60"},
        {**OF_SIDECAR, "reason": "store"},
    ),
    "AckdStoreAway": Case({f"ackd_store_up{SIDECAR}": "1x50 0x60"}, OF_SIDECAR),
    "AckdStoreFlaps": Case(rising("ackd_store_outages_total", SIDECAR), OF_SIDECAR),
    "AckdStoreSlow": Case(
        buckets("ackd_store_call_seconds", with_labels(SIDECAR, call="apply"), "0.5"), OF_SIDECAR
    ),
    "AckdStoreRestarted": Case(rising("ackd_store_run_changes_total", SIDECAR), OF_JOB),
    "AckdBrokerAway": Case(
        {f"ackd_broker_up{with_labels(SIDECAR, broker='b')}": "1x50 0x60"},
        {**OF_SIDECAR, "broker": "b"},
    ),
    "AckdNoOwner": Case({f"ackd_partitions_owned{SUB}": "3x50 0x60"}, OF_SUB),
    "AckdPushBreakerOpen": Case(
        {f"ackd_push_breaker_open{SUB}": "0x50 1x60"}, {**OF_SIDECAR, "subscription": "s"}
    ),
    "AckdPushThrottled": Case({f"ackd_push_throttled{SUB}": "0x50 1x60"}, OF_SUB),
    "AckdPausedForLong": Case({f"ackd_paused{SUB}": "0x5 1x120"}, OF_SUB, "90m"),
    "AckdCircuitBreakerOpen": Case(
        {f"ackd_circuit_breaker_open{SUB}": "0x50 1x60"}, {**OF_SIDECAR, "subscription": "s"}
    ),
    "AckdOutboxStands": Case(
        {f"ackd_outbox_due{with_labels(SIDECAR, broker='b')}": "0x50 7x60"},
        {**OF_JOB, "broker": "b"},
    ),
    "AckdOutboxRefused": Case(
        {f"ackd_outbox_failed{with_labels(SIDECAR, broker='b')}": "0x50 1x60"},
        {**OF_JOB, "broker": "b"},
    ),
    "AckdIdempotencyKeysNearlyFull": Case(
        {f"ackd_idempotency_keys_ratio{with_labels(SIDECAR, broker='b')}": "0.7x50 0.9x60"},
        {**OF_SIDECAR, "broker": "b"},
    ),
    "AckdProgressStands": Case(
        {
            f"ackd_watermark_offset{PART}": "0+9x20 180x100",
            f"ackd_lag_messages{PART}": "100x120",
            **rising("ackd_settles_total", with_labels(SUB, do="ack", status="acked"), 50),
        },
        OF_PART,
    ),
    "AckdMessageStuck": Case(
        {f"ackd_oldest_unfinished_age_seconds{PART}": "0+60x120"},
        OF_PART,
    ),
    "AckdTransactionOpen": Case(
        {f"ackd_transaction_held_seconds{PART}": "0x10 0+60x110"},
        OF_PART,
    ),
    "AckdBacklogGrows": Case({f"ackd_lag_messages{PART}": "0+100x200"}, OF_SUB, "120m"),
    "AckdWindowNearlyFull": Case(
        {f"ackd_window_used_ratio{SUB}": "0.5x5 0.9x120"}, {**OF_SIDECAR, "subscription": "s"}
    ),
    "AckdManyRetryTopicMoves": Case(
        rising("ackd_retry_topic_moves_total", with_labels(SUB, reason="age"), 20), OF_SUB
    ),
    "AckdCopiesNotStored": Case(
        {
            **rising("ackd_copies_total", with_labels(SUB, topic="retry-topic", outcome="failed")),
            f"ackd_copies_in_progress{SUB}": "4x120",
        },
        OF_SUB,
    ),
    "AckdDeadLettersGrow": Case(
        rising("ackd_copies_total", with_labels(SUB, topic="dead-letter-topic", outcome="stored")),
        OF_SUB,
    ),
    "AckdRecordsPutAside": Case(
        rising("ackd_claims_total", with_labels(SUB, outcome="aside")), OF_SUB
    ),
    "AckdLogCut": Case(rising("ackd_log_cuts_total", SUB), OF_SUB),
    "AckdDeadLettersOld": Case(
        {f"ackd_oldest_dead_letter_age_seconds{SUB}": "604700x5 604900x60"}, OF_SUB
    ),
    "AckdManyDeadLetters": Case({f"ackd_dead_letter_depth{SUB}": "1000x50 1001x60"}, OF_SUB),
    "AckdCopiesIgnored": Case(rising("ackd_copies_ignored_total", SUB), OF_SUB),
    "AckdCommitsFail": Case(
        rising("ackd_commits_total", with_labels(SUB, outcome="failed")), OF_SUB
    ),
    "AckdPossibleRollback": Case(rising("ackd_possible_rollbacks_total", SIDECAR), OF_JOB),
    "AckdStoreDataLost": Case(rising("ackd_store_data_lost_total", SIDECAR), OF_JOB),
    "AckdExternalCommit": Case(
        rising("ackd_external_commits_total", with_labels(SUB, decision="refused")),
        {**OF_SUB, "decision": "refused"},
    ),
    "AckdExpiredByRetention": Case(rising("ackd_messages_expired_by_retention_total", SUB), OF_SUB),
    "AckdVanished": Case(rising("ackd_vanished_total", SUB), OF_SUB),
    "AckdLateAcks": Case(rising("ackd_late_acks_total", SUB, 2), OF_SUB),
    "AckdLostSettles": Case(
        rising("ackd_lost_settles_total", with_labels(SUB, do="ack"), 2), OF_SUB
    ),
    "AckdLeasesExpire": Case(
        {
            **rising("ackd_lease_expiries_total", SUB, 20),
            **rising("ackd_deliveries_total", with_labels(SUB, kind="first"), 100),
        },
        OF_SUB,
    ),
    ABSENT: Case({f"ackd_info{SIDECAR}": "1x50"}, {}, "65m"),
    "AckdDeadlinesLate": Case(buckets("ackd_deadline_lateness_seconds", SUB, "0.5"), OF_SIDECAR),
    "AckdClockSkew": Case({f"ackd_clock_skew_seconds{SIDECAR}": "0x5 -9x120"}, OF_SIDECAR),
    "AckdPeersUnreachable": Case(
        {f"ackd_peers_unreachable{SIDECAR}": "0x30 1x5 0x3 2x60"}, OF_SIDECAR
    ),
    "AckdVersionsDiffer": Case(
        {
            'ackd_info{job="a",instance="i",version="1",identity="i"}': "1x150",
            'ackd_info{job="a",instance="j",version="2",identity="j"}': "1x150",
        },
        OF_JOB,
        "120m",
    ),
    "AckdSettingsDiffer": Case({f"ackd_settings_differ{SUB}": "0x5 1x120"}, OF_SUB),
    "AckdLogLinesDropped": Case(
        rising("ackd_log_lines_dropped_total", with_labels(SIDECAR, reason="slow-reader")),
        {**OF_SIDECAR, "reason": "slow-reader"},
    ),
    "AckdTraceSpansDropped": Case(
        rising("ackd_trace_spans_total", with_labels(SIDECAR, exporter="file", outcome="full")),
        {**OF_SIDECAR, "exporter": "file", "outcome": "full"},
    ),
}

HEALTHY = {
    # A rolling restart.
    f"ackd_readiness{with_labels(SIDECAR, reason='store')}": "1x60 0x3 1x140",
    f"ackd_readiness_warnings{with_labels(SIDECAR, reason='store')}": "0x60 1x8 0x140",
    f"ackd_store_up{SIDECAR}": "1x200",
    f"ackd_store_outages_total{SIDECAR}": "0x60 1x140",
    f"ackd_store_run_changes_total{SIDECAR}": "0x200",
    f"ackd_broker_up{with_labels(SIDECAR, broker='b')}": "1x200",
    f"ackd_partitions_owned{SUB}": "3x200",
    f"ackd_push_breaker_open{SUB}": "0x200",
    f"ackd_push_throttled{SUB}": "0x60 1x4 0x140",
    f"ackd_circuit_breaker_open{SUB}": "0x200",
    f"ackd_dead_letter_depth{SUB}": "1000x60 5000x3 1000x140",
    f"ackd_outbox_due{with_labels(SIDECAR, broker='b')}": "0x60 40x3 0x140",
    f"ackd_outbox_failed{with_labels(SIDECAR, broker='b')}": "0x200",
    f"ackd_window_used_ratio{SUB}": "0.6x60 0.95x5 0.5x140",
    f"ackd_copies_ignored_total{SUB}": "0x200",
    # An operator's pause of half an hour.
    f"ackd_paused{SUB}": "0x40 1x30 0x130",
    f"ackd_watermark_offset{PART}": "0+1000x200",
    f"ackd_lag_messages{PART}": "500x100 900x100",
    # Copies that wait for hours hold the retry topic, and more of them come than are due.
    f"ackd_watermark_offset{COPIES}": "40x200",
    f"ackd_lag_messages{COPIES}": "900+100x200",
    f"ackd_oldest_unfinished_age_seconds{PART}": "30x200",
    **rising("ackd_settles_total", with_labels(SUB, do="ack", status="acked"), 1000),
    **rising("ackd_deliveries_total", with_labels(SUB, kind="first"), 1000),
    # Some leases run out, some acks are late: a worker was restarted now and then.
    **rising("ackd_lease_expiries_total", SUB, 10),
    f"ackd_late_acks_total{SUB}": "0x50 3x150",
    f"ackd_lost_settles_total{with_labels(SUB, do='ack')}": "0x50 3x150",
    f"ackd_retry_topic_moves_total{with_labels(SUB, reason='age')}": "0+1x200",
    f"ackd_retry_topic_moves_total{with_labels(SUB, reason='delay')}": "0+500x200",
    **rising("ackd_copies_total", with_labels(SUB, topic="retry-topic", outcome="stored"), 20),
    f"ackd_copies_total{with_labels(SUB, topic='retry-topic', outcome='failed')}": "0x200",
    f"ackd_copies_total{with_labels(SUB, topic='dead-letter-topic', outcome='stored')}": "7x200",
    f"ackd_copies_in_progress{SUB}": "2x200",
    f"ackd_commits_total{with_labels(SUB, outcome='failed')}": "0x60 1x140",
    f"ackd_possible_rollbacks_total{SIDECAR}": "4x200",
    f"ackd_store_data_lost_total{SIDECAR}": "0x200",
    f"ackd_external_commits_total{with_labels(SUB, decision='refused')}": "0x200",
    f"ackd_messages_expired_by_retention_total{SUB}": "0x200",
    f"ackd_vanished_total{SUB}": "0x200",
    f"ackd_clock_skew_seconds{SIDECAR}": "0.02x200",
    'ackd_info{job="a",instance="i",version="1",identity="i"}': "1x200",
    # A rollout that takes forty minutes.
    'ackd_info{job="a",instance="j",version="2",identity="j"}': "_x40 1x160",
    f"ackd_settings_differ{SUB}": "0x200",
    f"ackd_log_lines_dropped_total{with_labels(SIDECAR, reason='repeated')}": "0+5x200",
    f"ackd_trace_spans_total{with_labels(SIDECAR, exporter='file', outcome='written')}": "0+9x200",
    f"ackd_trace_spans_total{with_labels(SIDECAR, exporter='file', outcome='crash')}": "5x200",
    f"ackd_trace_spans_total{with_labels(SIDECAR, exporter='file', outcome='full')}": "0x200",
}


def judge(folder: Path, tests: list[dict[str, object]]) -> None:
    """Let promtool judge the rules, without the sentences, on these series."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    for group in groups:
        for rule in group["rules"]:
            del rule["annotations"]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    (folder / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests})
    )
    promtool("test", "rules", folder / "test.yaml")


def series(given: dict[str, str]) -> list[dict[str, str]]:
    """As promtool reads them."""
    return [{"series": name, "values": values} for name, values in given.items()]


@pytest.fixture(autouse=True, scope="module")
def _tools() -> None:
    require(missing())


def test_the_file_is_one_that_prometheus_reads() -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)


def test_every_rule_has_a_case_here() -> None:
    assert [rule["alert"] for rule in rules()] == list(CASES)


def test_each_alert_fires(tmp_path: Path) -> None:
    """Each case is a deployment (`job`) of its own, so no alert fires for another one's series. One
    fires only when there are no sidecars at all.
    """
    severities = {rule["alert"]: rule["labels"] for rule in rules()}
    given: dict[str, str] = {}
    checks: list[dict[str, object]] = []
    alone = CASES[ABSENT]
    none_left: list[dict[str, object]] = [
        {"eval_time": "52m", "alertname": ABSENT, "exp_alerts": []},
        {
            "eval_time": alone.at,
            "alertname": ABSENT,
            "exp_alerts": [{"exp_labels": severities[ABSENT]}],
        },
    ]
    judge(
        tmp_path,
        [
            {
                "interval": "1m",
                "input_series": series(alone.series),
                "alert_rule_test": none_left,
            }
        ],
    )
    for name, case in CASES.items():
        if name == ABSENT:
            continue
        given |= {
            metric.replace('job="a"', f'job="{name}"'): values
            for metric, values in case.series.items()
        }
        labels = {**case.labels, "job": name, **severities[name]}
        checks.append(
            {"eval_time": case.at, "alertname": name, "exp_alerts": [{"exp_labels": labels}]}
        )
    judge(tmp_path, [{"interval": "1m", "input_series": series(given), "alert_rule_test": checks}])


def test_none_fires_for_a_healthy_deployment(tmp_path: Path) -> None:
    """Nor at any of these times, an outage and a worker's restart included."""
    checks: list[dict[str, object]] = [
        {"eval_time": at, "alertname": rule["alert"], "exp_alerts": []}
        for rule in rules()
        if rule["alert"] != "AckdVersionsDiffer"
        for at in ("30m", "65m", "75m", "120m")
    ]
    checks.append({"eval_time": "80m", "alertname": "AckdVersionsDiffer", "exp_alerts": []})
    judge(
        tmp_path,
        [{"interval": "1m", "input_series": series(HEALTHY), "alert_rule_test": checks}],
    )


def test_the_judge_can_say_no(tmp_path: Path) -> None:
    wrong: dict[str, object] = {
        "interval": "1m",
        "input_series": series({f"ackd_store_up{SIDECAR}": "1x60"}),
        "alert_rule_test": [
            {
                "eval_time": "60m",
                "alertname": "AckdStoreAway",
                "exp_alerts": [{"exp_labels": {**OF_SIDECAR, "severity": "page"}}],
            }
        ],
    }
    with pytest.raises(AssertionError, match="FAILED"):
        judge(tmp_path, [wrong])


def test_every_metric_of_a_rule_is_one_that_a_sidecar_has() -> None:
    known = {family.name for family in Metrics().families}
    for rule in rules():
        used = {name.removesuffix("_bucket") for name in METRIC.findall(rule["expr"])}
        assert used, rule["alert"]
        assert used <= known, rule["alert"]


def test_every_alert_has_a_section_in_the_runbook() -> None:
    text = RUNBOOK.read_text()
    sections = re.findall(r"^## (Ackd\w+)$", text, re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules()]
    for rule in rules():
        name, notes = rule["alert"], rule["annotations"]
        assert notes["runbook_url"] == f"docs/operate/runbook.md#{name.lower()}"
        assert notes["summary"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        body = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for part in ("**Means**", "**Look**", "**Do**"):
            assert part in body, f"{name} has no {part}"
