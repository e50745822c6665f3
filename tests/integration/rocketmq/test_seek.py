"""A group on RocketMQ is moved: ackd's half and the broker's (R8)."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from ackd.api.messages import SettleVerb
from ackd.api.progress import PartitionProgress, Position, SeekRequest, SeekTo
from ackd.engine.ownership.broker_acks import BrokerAckFlow
from ackd.errors import NotPausedError, NotSupportedError
from tests.integration.rocketmq.seeking import plan, seek
from tests.integration.rocketmq.shop import NAME, Shop, Worker
from tests.integration.rocketmq.test_resets import (
    acked,
    carried,
    nothing_more,
    told,
    told_no_more,
    values,
)
from tests.support.rocketmq import install
from tests.support.rocketmq.remote import admin, filed, queues_of
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 40
EARLIEST = SeekRequest(SeekTo.EARLIEST)
UNDO = SeekRequest(SeekTo.BEFORE_RESET)


async def again(worker: Worker, count: int) -> list[bytes]:
    """So many messages come, as first deliveries, and are acked; nothing else does."""
    found = await worker.collect(count)
    assert {each.attempt for each in found} == {1}
    assert await worker.settle(SettleVerb.ACK, *found) == ["acked"] * count
    await worker.broker_told()
    await nothing_more(worker)
    return carried(found)


async def test_r8_to_the_beginning_to_a_time_and_undone(shop: Shop) -> None:
    """With a dry run before each, on two queues; nothing is taken for somebody else's reset."""
    await shop.open(2)
    one = await shop.start(asks=True)
    await acked(one, "early", COUNT)
    await asyncio.sleep(0.01)
    between_ms = one.runtime._subscriptions[NAME].context.clock.wall_ms()
    await asyncio.sleep(0.01)
    await acked(one, "late", COUNT)
    with pytest.raises(NotPausedError):
        await one.runtime.progress.seek(NAME, EARLIEST)
    assert (await plan(one, EARLIEST)).again == 2 * COUNT
    assert await one.receive(wait_ms=1_000) == []
    await seek(one, EARLIEST)
    whole = sorted(values(COUNT, "early") + values(COUNT, "late"))
    assert await again(one, 2 * COUNT) == whole
    since = SeekRequest(SeekTo.TIME, time_ms=between_ms)
    assert (await plan(one, since)).again == COUNT
    await seek(one, since)
    half = await one.collect(COUNT // 2)
    assert await one.settle(SettleVerb.ACK, *half) == ["acked"] * len(half)
    # As it was before: the other half is finished again, though the broker brings it.
    undo = await plan(one, UNDO)
    assert undo.again == 0
    await seek(one, UNDO)
    await nothing_more(one)
    await acked(one, "new", 5)
    conditions = one.runtime._subscriptions[NAME].state.conditions
    assert not [code for code in conditions if code.startswith("came-again/")]


async def test_r8_to_the_end_skips_what_is_there(shop: Shop) -> None:
    await shop.open(1)
    one = await shop.start(asks=True)
    owned = one.runtime._subscriptions[NAME].partitions.owned

    async def taken() -> bool:
        return len(owned) == 1

    await wait_until_async(taken, "the queue has a record")
    await one.runtime.pause(NAME, "group", "test", None)
    await one.stored(*values(COUNT))
    await until_filed(one, COUNT)
    assert (await plan(one, SeekRequest(SeekTo.LATEST))).skipped == COUNT
    await seek(one, SeekRequest(SeekTo.LATEST))
    await nothing_more(one)
    await acked(one, "new", 5)


async def test_r8_what_was_exported_is_taken_over(shop: Shop) -> None:
    """After a seek back, what was finished before is so again, and what is new comes."""
    await shop.open(1)
    one = await shop.start(asks=True)
    await acked(one, "m", COUNT)
    exported = await one.runtime.progress.export(NAME)
    await seek(one, EARLIEST)
    (progress,) = exported.partitions
    ahead = _taken_over(progress)
    assert (await plan(one, ahead)).skipped == COUNT
    await seek(one, ahead)
    await nothing_more(one)
    await acked(one, "new", 5)


async def test_i3_a_live_lease_survives_and_is_not_delivered_twice(shop: Shop) -> None:
    await shop.open(1)
    one = await shop.start(asks=True, lease_ms=120_000)
    await one.stored(*values(COUNT))
    held, *found = await one.collect(COUNT)
    assert set(await one.settle(SettleVerb.ACK, *found)) == {"acked"}
    await seek(one, EARLIEST)
    back = await one.collect(COUNT - 1)
    assert held.record.offset not in {each.record.offset for each in back}
    assert await one.settle(SettleVerb.ACK, held, *back) == ["acked"] * COUNT
    await nothing_more(one)


async def test_r8_without_name_servers_readiness_names_the_command_and_ackd_waits(
    shop: Shop,
) -> None:
    """The command is run as it is written there."""
    await shop.open(1)
    one = await shop.start(asks=False)
    await acked(one, "m", COUNT)
    for to in (SeekRequest(SeekTo.TIME, time_ms=1), SeekRequest(SeekTo.LATEST)):
        with pytest.raises(NotSupportedError, match="set `name_servers`"):
            await one.runtime.progress.seek(NAME, to)
    to = SeekRequest(SeekTo.POSITIONS, positions=(Position(shop.topic, 0, 10),))
    assert (await plan(one, to)).again == COUNT - 10
    await seek(one, to)
    detail = await told(one, kind="seek")
    command = detail.partition("run mqadmin ")[2]
    ports = shop.rocketmq.ports
    command = command.replace("<name servers>", f"127.0.0.1:{ports.names}")
    command = command.replace("<address of broker-a>", shop.rocketmq.nodes[0].address)
    done = await asyncio.to_thread(_mqadmin, shop, command)
    assert "reset consumer offset to 10" in done.stdout, done.stdout + done.stderr
    assert {*await again(one, COUNT - 10)} < {*values(COUNT)}
    await told_no_more(one, kind="seek")
    conditions = one.runtime._subscriptions[NAME].state.conditions
    assert not [each for each in conditions if each.startswith("came-again/")]


async def test_r8_without_name_servers_a_seek_is_undone_and_none_goes_beyond_what_came(
    shop: Shop,
) -> None:
    """Though the record forgets in a seek how far the log reaches."""
    await shop.open(1)
    one = await shop.start(asks=False)
    await acked(one, "m", COUNT)
    exported = await one.runtime.progress.export(NAME)
    beyond = (
        Position(shop.topic, 0, COUNT + 1),
        Position(shop.topic, 0, COUNT, ((COUNT + 1, COUNT + 2),)),
    )
    for each in beyond:
        with pytest.raises(NotSupportedError, match=f"from offset {COUNT} on has come yet"):
            await plan(one, SeekRequest(SeekTo.POSITIONS, positions=(each,)))
    (progress,) = exported.partitions
    for to in (UNDO, _taken_over(progress)):
        await seek(one, SeekRequest(SeekTo.POSITIONS, positions=(Position(shop.topic, 0, 10),)))
        await told(one, kind="seek")
        assert (await plan(one, to)).skipped == COUNT - 10
        await seek(one, to)
        await told_no_more(one, kind="seek")
    await nothing_more(one)
    await acked(one, "new", 5)


async def test_r8_to_the_end_of_a_queue_that_no_sidecar_had_yet(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no record, and the group never got anything of it."""
    await shop.open(1)
    monkeypatch.setattr(BrokerAckFlow, "_share", _nobody_draws)
    one = await shop.start(asks=True)
    await one.stored(*values(COUNT))
    await until_filed(one, COUNT)
    progress = await one.runtime.progress.export(NAME)
    assert progress.partitions == []
    latest = await plan(one, SeekRequest(SeekTo.LATEST))
    (queue,) = latest.partitions
    assert (queue.from_offset, queue.to_offset) == (-1, COUNT)
    await seek(one, SeekRequest(SeekTo.LATEST))
    monkeypatch.undo()
    await nothing_more(one)
    await acked(one, "new", 5)


async def until_filed(worker: Worker, end: int) -> None:
    """The only queue of its topic ends there, as the broker tells."""
    shop = worker.shop
    async with admin(shop.rocketmq.ports.names) as remote:
        (queue,) = await queues_of(remote, shop.topic)
        await filed(remote, queue, end)


async def _nobody_draws(_: BrokerAckFlow) -> None:
    """As before the first heartbeat."""


def _taken_over(progress: PartitionProgress) -> SeekRequest:
    """An import of this."""
    finished = tuple(progress.finished)
    to = Position(progress.topic, progress.partition, progress.offset, finished, progress.topic_id)
    return SeekRequest(SeekTo.POSITIONS, positions=(to,), increase_only=True, imported=True)


def _mqadmin(shop: Shop, words: str) -> subprocess.CompletedProcess[str]:
    folder = shop.folder / "mqadmin"
    folder.mkdir()
    return subprocess.run(
        [
            *("java", "-XX:TieredStopAtLevel=1", "-Xmx128m", f"-Duser.home={folder}"),
            *("-cp", f"{install()}/*", "org.apache.rocketmq.tools.command.MQAdminStartup"),
            *words.split(),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "ROCKETMQ_HOME": str(folder)},
    )
