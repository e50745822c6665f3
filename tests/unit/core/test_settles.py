"""What a settle verb is, stands in one table, and everybody who has to know takes it from there.

That nobody keeps a list beside it, `tests/tidy/verb_lists.py` checks.
"""

import argparse
from typing import get_args

import pytest

from ackd.api.messages import SettleItem
from ackd.cli.commands import lease
from ackd.core.ledger.entry import STATE_AFTER
from ackd.core.record import decide, texts
from ackd.core.record.settles import OF_OUTCOME, OF_VERB, SETTLES, Due, SettleRule, Status
from ackd.core.record.transitions import Outcome, State
from ackd.engine.settlement.results import STATUSES
from ackd.http.formats import model
from ackd.http.handlers import settle
from ackd.http.openapi import document
from ackd.http.routes import ROUTES
from ackd.push.answer import judge
from ackd.store import scripts
from ackd.telemetry import zeros
from ackd.telemetry.metrics import Metrics
from ackd.telemetry.spans import SpanEvent
from ackd_top.scrape import read

RULES = list(SETTLES.values())
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.do.value)
BODIES = {str(body.__struct_config__.tag): body for body in get_args(model.Item)}


@every_rule
def test_the_record_the_script_and_the_ledger(rule: SettleRule) -> None:
    assert rule.outcome in decide.JOURNALED, "the owner would not learn of it (R16)"
    assert (rule.outcome in texts.REASONED) == rule.reason
    assert (rule.outcome in texts.NOTED) == rule.note
    assert STATE_AFTER.get(rule.outcome, State.FINISHED) == rule.state
    script = scripts.source("origins")
    assert f"outcome == {int(rule.outcome)}" in script.partition("JOURNAL, offset")[0]


@every_rule
def test_http_reads_it_in_a_batch_and_by_its_own_address(rule: SettleRule) -> None:
    body = BODIES[rule.do.value]
    assert body.__struct_fields__ == ("lease", *rule.options)
    assert body(lease="v1.x").item() == SettleItem("v1.x", rule.do)
    assert model.OPTIONS[rule.do].__struct_fields__ == rule.options
    (route,) = [each for each in ROUTES if each.path == f"/v1/leases/{{lease}}/{rule.do.value}"]
    assert route.handler is settle.ONE[rule.do]
    assert rule.text in str(document(ROUTES))


@every_rule
def test_metrics_spans_and_the_command(rule: SettleRule) -> None:
    assert STATUSES[rule.outcome] is rule.status
    assert rule.span.upper() in SpanEvent.__members__
    metrics = Metrics()
    zeros.begin(metrics, "orders")
    (family,) = [each for each in metrics.registry.collect() if each.name == "ackd_lost_settles"]
    assert [each.value for each in family.samples if each.labels["do"] == rule.do] == [0]
    parser = argparse.ArgumentParser()
    lease.add_arguments(parser)
    assert parser.parse_args([rule.do.value, "v1.x"]).action == rule.do.value


@every_rule
def test_failures_and_answers_of_applications(rule: SettleRule) -> None:
    line = f'ackd_settles_total{{subscription="s",do="{rule.do}",status="{rule.status}"}} 3\n'
    figures = read("# TYPE ackd_settles_total counter\n" + line)["s"]
    assert (figures.failed == 3) == rule.failure
    verdict = judge(200, {"Ackd-Do": rule.do.value, "Ackd-Delay-Ms": "7"}, 0)
    assert verdict.explicit == rule.push
    if rule.push:
        assert verdict.do is rule.do
        assert (verdict.delay_ms == 7) == (rule.due is Due.DELAY)
        assert (verdict.reason is not None) == rule.reason


def test_the_table_says_one_thing_of_each_verb() -> None:
    assert set(STATUSES) == {*OF_OUTCOME, Outcome.ALREADY_ACKED}
    assert set(BODIES) == {rule.do.value for rule in RULES}
    assert len(OF_VERB) == len(OF_OUTCOME) == len({rule.status for rule in RULES}) == len(RULES)
    assert {*Status} >= {rule.status for rule in RULES}
