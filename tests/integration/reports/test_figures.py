"""The figures of a report against the same traces counted in plain Python."""

from collections import Counter, defaultdict

import pytest
from pyspark.sql import SparkSession

from ackd_reports import histogram
from ackd_reports.frames.lives import bucket_of
from tests.integration.reports.conftest import PLAN, World
from tests.support import plain_report
from tests.support.otlp import offsets

SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}


def test_counts_equal_plain_python(world: World) -> None:
    """In all, and in each group."""
    lives = plain_report.lives(world.made.files)
    wanted = plain_report.counts(lives.values())
    assert {name: world.report["totals"][name] for name in wanted} == dict(wanted)
    groups = defaultdict(list)
    for key, life in lives.items():
        groups[key[0], key[1], key[2]].append(life)
    found = {(row["system"], row["topic"], row["group"]): row for row in world.report["groups"]}
    assert found.keys() == groups.keys()
    for key, listed in groups.items():
        counted = plain_report.counts(listed)
        assert {name: found[key][name] for name in counted} == dict(counted), key


def test_counts_equal_what_was_generated(world: World) -> None:
    """The generator counts while it writes: lost, repeated and late spans change nothing."""
    made, totals = world.made.counts, world.report["totals"]
    assert totals["messages"] == PLAN.messages
    assert made["redriven"] > 0
    assert (totals["acked"], totals["dead"]) == (made["ack"], made["dead"] - made["redriven"])
    assert totals["redriven"] == made["redriven"]
    assert totals["unfinished"] == made["stuck"]
    assert totals["acked_again"] == made["again"] == PLAN.again
    assert (totals["retries"], totals["expires"]) == (made["retry"], made["expire"])
    assert totals["extensions"] == made["extensions"]


def test_batches_are_counted_once(world: World) -> None:
    """Deliveries and acks of each group, from spans that name many messages."""
    found: Counter[tuple[str, str]] = Counter()
    for _, named in {str(each): each for each in plain_report.spans(world.made.files)}.values():
        if named["ackd.event"] in ("receive", "settle"):
            count = int(named["messaging.batch.message_count"])
            assert count == len(list(offsets(named["ackd.offsets"])))
            found[named["ackd.event"], named["messaging.consumer.group.name"]] += count
    for row in world.report["batches"]:
        assert row["deliveries"] == found["receive", row["group"]]
        assert row["acks"] == found["settle", row["group"]]
    acks = sum(row["acks"] for row in world.report["batches"])
    assert acks == world.report["totals"]["acked"] > 0


def test_days_are_the_sum_of_their_hours(world: World) -> None:
    report = world.report
    for name in ("messages", "acked", "retries"):
        days = Counter[str]()
        for row in report["hours"]:
            days[row["hour"][:10]] += row[name]
        assert days == Counter(
            {
                day: sum(row[name] for row in report["days"] if row["day"][:10] == day)
                for day in {row["day"][:10] for row in report["days"]}
            }
        )


def test_percentiles_are_within_the_stated_error(world: World) -> None:
    values = defaultdict(list)
    for life in plain_report.lives(world.made.files).values():
        for name, duration in plain_report.durations(life).items():
            values[name].append((duration, life.weight))
    for name, found in world.report["durations"].items():
        assert found["n"] == len(values[name])
        for share, part in SHARES.items():
            exact = plain_report.percentile(values[name], part) / 1000
            assert found[share] == pytest.approx(exact, rel=histogram.ERROR + 1e-6), (name, share)


def test_promises_are_counted_message_by_message(world: World) -> None:
    """Unfinished ones are broken once they are older than allowed."""
    lives = plain_report.lives(world.made.files)
    end = max(end for life in lives.values() for _, _, _, end, _ in life.events)
    good = bad = 0
    for life in lives.values():
        took = plain_report.durations(life).get("time_to_ack")
        assert life.published is not None
        open_ = took is None and life.first("dead", 3) is None
        if open_ and end + 1 - life.published <= 5_000_000:
            continue
        kept = took is not None and took <= 5_000_000
        good, bad = good + kept, bad + (not kept)
    promise = world.report["promises"][1]
    assert (promise["good"], promise["bad"]) == (good, bad)
    assert promise["share"] == pytest.approx(good / (good + bad))
    worst = [each["took_ms"] for each in promise["examples"]]
    assert worst == sorted(worst, reverse=True)
    assert len(worst) == min(bad, 10)


def test_each_message_given_out_after_its_ack_is_listed(world: World) -> None:
    """I2 seen from the traces."""
    again = world.report["acked_again"]
    assert len(again) == PLAN.again
    assert all(each["last_lease"] > each["ack_end"] for each in again)
    assert world.report["promises"][0]["state"] == "broken"


def test_sidecars_and_outages(world: World) -> None:
    told = world.report["sidecars"]
    assert (told["instances"], told["restarts"]) == (3, 1)
    assert {each["of"] for each in told["outages"]} == {"store"}
    (outage,) = told["outages"]
    assert outage["sidecars"] == 3
    assert max(each["lag_max"] for each in world.report["commit_lag"]) == 2_000


def test_buckets_are_the_same_in_spark_and_in_python(spark: SparkSession) -> None:
    """Around every bound, where a logarithm could fall on either side."""
    middle = [round(2 ** (step / 32)) for step in range(32 * 38)]
    values = sorted({max(0, value + off) for value in middle for off in (-1, 0, 1)})
    texts = ",".join(map(str, values))
    frame = spark.sql(f"SELECT explode(from_json('[{texts}]', 'array<bigint>')) AS us")
    rows = frame.select("us", bucket_of("us").alias("cell")).collect()
    assert len(rows) == len(values)
    assert [row["us"] for row in rows if row["cell"] != histogram.bucket(row["us"])] == []
