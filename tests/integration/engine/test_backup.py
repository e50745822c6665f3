"""Backups of the store that are put back: of this cluster from earlier, and of another one."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ackd.api.messages import Delivery, SettleItem, SettleVerb, Status
from ackd.cli.offline.inventory import ask_brokers, take
from ackd.config.schema import StoreSettings
from ackd.store.build import open_store
from ackd.store.survey import Survey
from tests.conftest import RedisFactory
from tests.integration.engine.together import NAME, PARTITIONS, Sidecar, Together
from tests.support.redis import Flavour, RedisOptions, binary
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
OPTIONS = RedisOptions(
    binary(Flavour.VALKEY), config={"appendonly": "yes", "appendfsync": "always"}
)


async def ack(sidecar: Sidecar, messages: list[Delivery]) -> set[str]:
    """Settle them; their ids."""
    items = [SettleItem(each.lease, SettleVerb.ACK) for each in messages]
    results = await sidecar.runtime.settle(items)
    assert {each.status for each in results} == {Status.ACKED}
    return {each.id for each in messages}


async def test_r10_an_old_backup_is_a_rollback(own_redis: RedisFactory, tmp_path: Path) -> None:
    """I2: what was acked since then does not come again, as the commit's metadata knows it; the
    term is new, and it is told.
    """
    server = own_redis(OPTIONS)
    async with AsyncExitStack() as stack:
        store = StoreSettings(url=server.url, prefix="backup")
        place = Together(stack, tmp_path, store, "orders")
        one = await place.start("one", lease_ms=20_000)
        await one.publish(80)
        acked = await ack(one, await one.collect(20))
        await asyncio.to_thread(server.copy_data, "old")
        got = await one.collect(40)
        acked |= await ack(one, [each for each in got if each.record.offset % 4])
        open_ = {each.id for each in got} - acked
        await one.runtime.stop()
        await asyncio.to_thread(server.terminate)
        await asyncio.to_thread(server.restore_data, "old")
        await asyncio.to_thread(server.start)
        two = await place.start("two", lease_ms=60_000)
        rest = await two.collect(80 - len(acked))
        ids = {each.id for each in rest}
        assert open_ <= ids
        assert not ids & acked
        assert not (await two.receive(wait_ms=1_500)).messages
        registry = two.runtime.metrics.registry
        assert registry.get_sample_value("ackd_possible_rollbacks_total")


async def test_r1_another_clusters_backup_is_left_alone(
    own_redis: RedisFactory, tmp_path: Path
) -> None:
    """I1: its position of 200 hides no message here, although all names are the same."""
    server = own_redis(OPTIONS)
    async with AsyncExitStack() as stack:
        store = StoreSettings(url=server.url, prefix="backup")
        there = Together(stack, tmp_path / "there", store, "orders")
        here = Together(stack, tmp_path / "here", store, "orders")
        old = await there.start("old")
        await old.publish(200)
        await ack(old, await old.collect(200))
        await old.runtime.stop()
        one = await here.start("one")
        await one.publish(40)
        assert len(await ack(one, await one.collect(40))) == 40
        tool = open_store(store, tmp_path / "tool")
        await tool.start()
        stack.push_async_callback(tool.close)

        async def told() -> bool:
            settings = one.runtime.settings
            rows = (await take(Survey(tool), settings, await ask_brokers(settings))).rows
            strange = [row for row in rows if row.orphan.startswith("it is of another cluster")]
            ours = [row for row in rows if row.owner == "one" and not row.orphan]
            return len(strange) == len(ours) == PARTITIONS

        await wait_until_async(told, f"`ackd store ls` to tell {NAME}'s records apart")
