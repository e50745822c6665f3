"""The report of real traces: what sidecars wrote under faults, against their clients' histories.

Three counts of the same: the histories' checker, a reader by the official messages, the report.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ackd.telemetry.tracefile import SUFFIX
from ackd_reports.frames.lake import Lake
from ackd_torture.child import BrokerPart, Part
from ackd_torture.nemesis import Nemesis, Temper
from ackd_torture.parts import LocalQueue, Sidecar
from ackd_torture.run import Course, Script
from tests.chaos.judged import CALM_S, judge, setup_for
from tests.chaos.traced import assert_traced
from tests.chaos.world import KafkaAt
from tests.integration.reports.conftest import report
from tests.support.paths import remove_run_dir, run_dir
from tests.support.pulsar.part import PulsarAt
from tests.support.rocketmq.part import RocketMQAt
from tests.support.wait import wait_until

KILLS = 2
OF: dict[str, Callable[[Any], BrokerPart]] = {
    "kafka": KafkaAt,
    "pulsar": PulsarAt,
    "rocketmq": RocketMQAt,
}


def killed_twice(traces: Path) -> Script:
    """The application and the sidecar, one after the other, twice: not before its start is told, as
    nobody else can tell of it.
    """

    def told(starts: int) -> bool:
        files = [each for each in traces.glob(f"*{SUFFIX}") if each.stat().st_size]
        return len(files) >= starts

    async def script(nemesis: Nemesis, workers: Sequence[Part]) -> None:
        sidecar = next(each for each in nemesis.parts if isinstance(each, Sidecar))
        for starts in range(1, KILLS + 1):
            for each in workers:
                await nemesis.kill(each, down_ms=200)
            await asyncio.to_thread(wait_until, partial(told, starts), "traces of this start")
            await nemesis.kill(sidecar, down_ms=200)

    return script


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind", ["local", *(pytest.param(each, marks=getattr(pytest.mark, each)) for each in OF)]
)
def test_counts_are_those_of_the_history(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """I1, I2 and what each promise rests on; what a kill took with it is counted, and is all."""
    folder = run_dir("report")
    broker = OF[kind](request.getfixturevalue(kind)) if kind in OF else LocalQueue(folder)
    topic = f"real-{random.randrange(10**6)}"
    try:
        setup = setup_for(broker, folder, topic, sidecars=1, store="embedded")
        course = Course(seed=6, kills=0, temper=Temper(), warm_s=3.0, calm_s=CALM_S)
        verdict = judge(setup, course, script=killed_twice(folder / "traces"), name="report")
        assert verdict.kept
        traced = assert_traced(folder)
        lake = Lake(spark, str(tmp_path / "lake"))
        assert lake.ingest([str(folder / "traces")]).cut == ()
        # What the last kill took is told at the start after it, maybe after the last message.
        found = report(lake, tmp_path / "out", time.time_ns() // 1000)
    finally:
        remove_run_dir(folder)
    totals, missing = found["totals"], traced.missing
    assert found["quarantine"]["counts"] == {}
    assert totals["acked"] == len(traced.acked) > 0
    assert verdict.acked - missing["ack"] - traced.uncounted <= totals["acked"]
    assert totals["acked"] <= verdict.acked + verdict.acks_unclear
    assert totals["acked_again"] == verdict.count("acked_then_redelivered") == 0
    assert found["promises"][0]["state"] == "kept"
    assert totals["dead"] == totals["redriven"] == 0
    (batches,) = found["batches"]
    assert batches["deliveries"] == traced.delivered
    assert batches["redeliveries"] == traced.again
    assert verdict.deliveries <= batches["deliveries"] + missing["receive"]
    told = found["sidecars"]
    assert (told["instances"], told["restarts"]) == (1, KILLS)
    complete = found["completeness"]
    assert complete["spans_dropped"] == sum(missing.values())
    assert complete["spans_missing"] == complete["spans_bad"] == 0
