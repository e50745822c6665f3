"""Why objectives were breached: causes, a message for each, and the same as flat tables."""

from collections import defaultdict
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ackd_reports.flat import TABLES
from ackd_reports.generate import bad_hour
from ackd_reports.plain import iso
from tests.integration.reports.conftest import PLAN, World


def of(world: World, name: str) -> dict[str, Any]:
    """A breached objective."""
    (found,) = [each for each in world.report["promises"] if each["name"] == name]
    assert found["state"] == "broken"
    return dict(found)


def test_shares_of_outcomes_and_outages_add_up(world: World) -> None:
    """Each bad message of the period has one outcome, and was amid an outage or not."""
    found = of(world, "in time")
    sums: defaultdict[str, float] = defaultdict(float)
    for each in found["causes"]:
        sums[each["dimension"]] += each["messages"]
    bad = found["period"]["bad"]
    assert bad > 0
    for dimension in ("outcome", "outage", "subscription", "application", "sidecar"):
        assert sums[dimension] == bad, dimension
    assert 0 < sums["partition"] <= bad


def test_the_outage_is_a_cause_with_its_begin(world: World) -> None:
    """The store was away for four minutes: the messages that lived through them have its name."""
    since, _ = bad_hour(PLAN)
    values = {
        each["value"]: each["messages"]
        for each in of(world, "in time")["causes"]
        if each["dimension"] == "outage"
    }
    name = f"store {iso(since)[:16].replace('T', ' ')}"
    assert set(values) == {name, "no outage"}
    (outage,) = world.report["sidecars"]["outages"]
    assert (outage["name"], outage["sidecars"]) == (name, PLAN.sidecars)


def test_each_outcome_has_a_typical_message(world: World) -> None:
    found = of(world, "in time")
    outcomes = {each["value"] for each in found["causes"] if each["dimension"] == "outcome"}
    typical = {each["outcome"]: each for each in found["typical"]}
    assert outcomes <= typical.keys()
    for outcome, each in typical.items():
        assert each["trace_id"]
        assert (outcome == "given up") == (each["dead"] is not None and each["ack_end"] is None)
        if outcome == "a lease ran out":
            assert each["counts"]["expires"] >= 1
    assert typical["waited for its first lease"]["took_ms"] >= 5_000


def test_subscriptions_are_sorted_by_what_matters(world: World) -> None:
    rows = world.report["subscriptions"]
    order = ["broken", "no data", "kept"]
    states = [order.index(each["state"]) for each in rows]
    assert len(rows) == PLAN.streams
    assert states == sorted(states)
    for each in rows:
        assert sum(point["messages"] for point in each["series"]) == each["messages"]
        assert any(point["p99_ms"] for point in each["series"])


@pytest.mark.parametrize("name", list(TABLES))
def test_flat_tables_are_parquet_too(name: str, world: World, spark: SparkSession) -> None:
    table = TABLES[name]
    found = spark.read.parquet(f"{world.out}/gold/{name}")
    assert dict(found.dtypes) == {column: type_.lower() for column, type_ in table.columns.items()}
    rows = [dict(each) for each in table.rows_of(world.report)]
    assert [each.asDict() for each in found.collect()] == rows
    assert rows
