"""Processes killed with -9 and frozen in the middle of their work: nothing lost, nothing half."""

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from ackd.core.ids import TopicPartition
from ackd.ports import ConsumerSpec
from ackd_adapters.local import LocalBroker
from ackd_testing import Reader
from tests.integration.local.conftest import Open, Publisher
from tests.integration.local.publisher import TOPIC, identity
from tests.support.proc import Process
from tests.support.wait import wait_until

PARTITIONS = 4
KILLS = 6


def confirmed(process: Process) -> dict[tuple[int, int], str]:
    """Where each confirmed message lies, as the process said before it died."""
    found: dict[tuple[int, int], str] = {}
    for line in process.log().splitlines(keepends=True):
        if not line.endswith("\n"):
            continue  # it was killed while it wrote this line
        word, partition, offset, name = line.split()
        assert word == "ok", process.log()[-2000:]
        place = (int(partition), int(offset))
        assert place not in found, f"{place} was given twice"
        found[place] = name
    return found


async def everything(broker: LocalBroker) -> dict[tuple[int, int], str]:
    """All messages of the topic; each is whole and offsets have no gap."""
    consumer = broker.consumer(ConsumerSpec("look", (TOPIC,), "look"))
    await consumer.start()
    reader = Reader(consumer)
    parts = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    ends = {part: (await consumer.log_range(part))[1] for part in parts}
    for part in parts:
        reader.fetch_from(part, 0)
    await reader.until(lambda: all(reader.ended(part, ends[part]) for part in parts), "all ends")
    found: dict[tuple[int, int], str] = {}
    for part in parts:
        assert reader.offsets(part) == list(range(ends[part]))
        for record in reader.records[part]:
            assert record.value is not None
            found[part.partition, record.offset] = identity(record.value)
    await consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 200])
async def test_i1_publisher_killed_in_mid_batch(
    batch: int, opened: Open, publisher: Publisher
) -> None:
    """I1, I7: what was confirmed is there, at the place that was told, whole, and once."""
    rng = random.Random(batch)
    promised: dict[tuple[int, int], str] = {}
    for turn in range(KILLS):
        process = publisher(f"p{turn}", batch)
        await asyncio.to_thread(wait_until, lambda p=process: len(confirmed(p)) > 2 * batch, "some")
        await asyncio.sleep(rng.uniform(0, 0.1))
        await asyncio.to_thread(process.kill)
        said = confirmed(process)
        assert not said.keys() & promised.keys(), "a place was given to two messages"
        promised |= said
    found = await everything(await opened())
    assert {place: found.get(place) for place in promised} == promised
    assert len(set(found.values())) == len(found), "a message lies in two places"
    # Unconfirmed ones may be there: at most one batch for each kill.
    assert len(found) - len(promised) <= KILLS * batch


@pytest.mark.slow
async def test_i1_two_publishers_killed_at_once(opened: Open, publisher: Publisher) -> None:
    """I1 with writers that contend for the file; a third one was never disturbed."""
    survivor = publisher("survivor", 20)
    victims = [publisher(f"victim{number}", 50) for number in range(2)]
    for process in (survivor, *victims):
        await asyncio.to_thread(
            wait_until, lambda p=process: len(confirmed(p)) > 200, "some", timeout_s=60
        )
    for process in victims:
        process.signal(signal.SIGKILL)
    before = len(confirmed(survivor))
    await asyncio.to_thread(
        wait_until, lambda: len(confirmed(survivor)) > before + 200, "it goes on"
    )
    await asyncio.to_thread(survivor.kill)
    promised: dict[tuple[int, int], str] = {}
    for process in (survivor, *victims):
        said = confirmed(process)
        assert not said.keys() & promised.keys()
        promised |= said
    found = await everything(await opened())
    assert {place: found.get(place) for place in promised} == promised
    assert len(set(found.values())) == len(found)


@pytest.mark.slow
async def test_i1_delayed_messages_survive_their_publisher(
    opened: Open, publisher: Publisher
) -> None:
    """Delays outlive the process that asked for them; who is left wakes up in time."""
    delay_ms = 1500
    process = publisher("late", 10, delay_ms)
    await asyncio.to_thread(wait_until, lambda: "late-99\n" in process.log(), "a hundred")
    await asyncio.to_thread(process.kill)
    killed = time.monotonic()
    whole = [line for line in process.log().splitlines(keepends=True) if line[-1] == "\n"]
    said = [line.split()[3] for line in whole]
    assert {line.split()[2] for line in whole} <= {"-1"}
    broker = await opened()
    consumer = broker.consumer(ConsumerSpec("g", (TOPIC,), "c"))
    await consumer.start()
    reader = Reader(consumer)
    parts = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    for part in parts:
        reader.fetch_from(part, 0)

    def come() -> list[str]:
        return [identity(record.value or b"") for part in parts for record in reader.records[part]]

    await reader.until(lambda: len(come()) >= len(said), "all")
    assert time.monotonic() - killed < delay_ms / 1000 + 20
    assert set(said) <= set(come())
    assert len(set(come())) == len(come())


async def test_killed_member_is_noticed_at_once(
    opened: Open, folder: Path, publisher: Publisher
) -> None:
    """The kernel drops a dead process' lock: its files and its claims go, no time-out is waited."""
    process = publisher("p", 1)
    await asyncio.to_thread(wait_until, lambda: confirmed(process), "it runs")
    broker = await opened()
    signs = folder / "members"
    assert len(list(signs.iterdir())) == 2
    await asyncio.to_thread(process.kill)
    again = await opened()
    assert len(list(signs.iterdir())) == 2
    await broker.close()
    await again.close()
    assert not list(signs.iterdir())
