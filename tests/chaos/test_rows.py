"""Design section 8, row by row, under load: each fault once by script, then the verdict.

0 lost (I1), 0 acked then redelivered (I2), never two holders (I3), no lease ended early (I4), no
false yes (I7). One run for all rows, since starting, draining and waiting for what must not come
costs more than the faults do; the verdict's JSON tells after each fault how long it took to go on.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from ackd_torture.child import Part
from ackd_torture.nemesis import Nemesis
from ackd_torture.parts import LocalQueue
from ackd_torture.run import Course
from tests.chaos.judged import CALM_S, assert_kept, judge, setup_for
from tests.chaos.world import KafkaAt

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(480)]


def rows(parts: dict[str, Part]) -> list[tuple[str, Part, int]]:
    """(what, whom, how long in ms) for the parts by name."""
    found: list[tuple[str, Part, int]] = [
        ("kill", parts["application 1"], 200),
        ("kill", parts["s1"], 300),
        # Longer than the silence after which a neighbour takes over: it wakes up as a zombie.
        ("freeze", parts["s1"], 6_000),
        ("kill", parts["store"], 500),
        ("freeze", parts["store"], 3_000),
    ]
    if "kafka" in parts:
        found += [("kill", parts["kafka"], 500), ("freeze", parts["kafka"], 4_000)]
    return found


async def each_row(nemesis: Nemesis, workers: Sequence[Part], parts: Sequence[Part]) -> None:
    for what, part, for_ms in rows({each.name: each for each in (*parts, *workers)}):
        if what == "kill":
            await nemesis.kill(part, down_ms=for_ms)
        else:
            await nemesis.freeze(part, frozen_ms=for_ms)
        await asyncio.sleep(1.0)
    for proxy in nemesis.proxies:
        await nemesis.cut(proxy)
        await asyncio.sleep(0.5)


def test_every_row_on_kafka(at_kafka: KafkaAt, folder: Path) -> None:
    setup = setup_for(at_kafka, folder, f"rows-{random.randrange(10**6)}", sidecars=2)

    async def script(nemesis: Nemesis, workers: Sequence[Part]) -> None:
        await each_row(nemesis, workers, nemesis.parts)

    verdict = judge(
        setup, Course(seed=1, calm_s=CALM_S), script=script, hurt_broker=True, name="rows-kafka"
    )
    assert_kept(verdict)
    assert verdict.faults >= 7


def test_every_row_on_the_local_queue(folder: Path) -> None:
    """Two sidecars share the folder of the queue and one store."""
    setup = setup_for(LocalQueue(folder), folder, "rows", sidecars=2)

    async def script(nemesis: Nemesis, workers: Sequence[Part]) -> None:
        await each_row(nemesis, workers, nemesis.parts)

    verdict = judge(setup, Course(seed=2, calm_s=CALM_S), script=script, name="rows-local")
    assert_kept(verdict)
