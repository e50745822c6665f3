"""One of three sidecars is killed and started again, with default settings: no partition waits for
the group that still counts on the dead member, and soon it has partitions again (R5).
"""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.judged import told
from tests.chaos.working import Work, working
from tests.chaos.world import KafkaAt, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(300)]

GAP_S = 3.0
GROUP_S = 30.0
"""Eight seconds until the group lets the dead member go, and its rebalances."""
PARTITIONS = 6
AFTER_S = 6.0
Figure = Callable[[str, float], None]


def owned(sidecar: Sidecar, topic: str) -> set[str]:
    """The partitions that a sidecar owns, by its metrics."""
    mark, lines = f'topic="{topic}"', told(sidecar, "/metrics").splitlines()
    gauges = [each for each in lines if each.startswith("ackd_watermark_offset{")]
    return {each.rpartition(" ")[0] for each in gauges if mark in each}


def gap_s(work: Work, begin_s: float, end_s: float) -> float:
    """The longest time without a delivery of one partition, less what this process starved."""
    times: dict[str, list[float]] = {}
    for at, _, message in work.came:
        known = times.setdefault(message.rpartition("/")[0], [])
        if begin_s <= at <= end_s:
            known.append(at)
    assert len(times) == PARTITIONS
    return max(
        b - a - work.starved.within(a, b)
        for those in times.values()
        for a, b in pairwise([begin_s, *sorted(those), end_s])
    )


def test_partitions_of_a_dead_sidecar_wait_for_no_group(
    at_kafka: KafkaAt, folder: Path, figure: Figure
) -> None:
    with world(at_kafka, folder, partitions=PARTITIONS) as deployment:
        sidecars = [deployment.sidecar(f"s{each}") for each in (1, 2, 3)]
        topic = deployment.topic
        dead, *others = sidecars
        with working(sidecars, topic) as work:
            wait_until(
                lambda: [len(owned(each, topic)) for each in sidecars] == [2, 2, 2],
                "the group has settled",
                timeout_s=90,
            )
            killed_s = time.monotonic()
            dead.kill()
            wait_until(
                lambda: (
                    len(set[str]().union(*(owned(each, topic) for each in others))) == PARTITIONS
                ),
                "others own all",
                timeout_s=GROUP_S,
            )
            owned_s = time.monotonic()
            time.sleep(AFTER_S)
            started_s = time.monotonic()
            dead.launch()
            wait_until(lambda: owned(dead, topic), "it owns partitions again", timeout_s=GROUP_S)
            again_s = time.monotonic()
            time.sleep(AFTER_S)
            ended_s = time.monotonic()
        found = {
            "others own all after": owned_s - killed_s,
            "longest gap after the kill": gap_s(work, killed_s, started_s),
            "it owns partitions again after": again_s - started_s,
            "longest gap after its start": gap_s(work, started_s, ended_s),
        }
        print({name: round(value, 2) for name, value in found.items()})  # noqa: T201
        for name, value in found.items():
            figure(f"one of three killed, {name} s", round(value, 2))
        assert set(work.settled) == {"acked"}
        assert found["longest gap after the kill"] <= GAP_S
        assert found["longest gap after its start"] <= GAP_S
