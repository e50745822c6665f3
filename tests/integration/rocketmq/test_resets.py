"""Somebody resets the group at the broker alone, as `mqadmin resetOffsetByTime` does: it is
noticed, and either replayed or refused, never swallowed (R8).
"""

import asyncio

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.core.ids import TopicPartition
from ackd.engine.ownership.broker_resets import NOTE_MS
from tests.integration.rocketmq.shop import NAME, Shop, Worker
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 300
"""More than come out of order at once."""


def values(count: int, word: str = "m") -> list[bytes]:
    return [b"%s %d" % (word.encode(), number) for number in range(count)]


def carried(messages: list[Delivery]) -> list[bytes]:
    return sorted(each.record.value or b"" for each in messages)


async def acked(worker: Worker, word: str = "m", count: int = COUNT) -> None:
    """So many messages are published, delivered and acked, and the broker knows it."""
    await worker.stored(*values(count, word))
    found = await worker.collect(count)
    assert carried(found) == sorted(values(count, word))
    assert await worker.settle(SettleVerb.ACK, *found) == ["acked"] * count
    await worker.broker_told()


async def told(worker: Worker, queue: int = 0, kind: str = "reset") -> str:
    """What readiness says of it."""
    conditions = worker.runtime._subscriptions[NAME].state.conditions
    code = f"{kind}/{worker.shop.topic}/{queue}"

    async def noticed() -> bool:
        ready = [each.detail for each in worker.runtime.readiness() if each.ok]
        return code in conditions and any(conditions[code].detail in each for each in ready)

    await wait_until_async(noticed, "readiness tells of it", timeout_s=60)
    return conditions[code].detail


async def nothing_more(worker: Worker) -> None:
    """Nothing comes that was acked."""
    assert await worker.receive(wait_ms=8_000) == []


async def reset(shop: Shop, offset: int, queue: int = 0) -> None:
    """As the operator does it."""
    await asyncio.to_thread(shop.rocketmq.admin.reset, shop.topic, shop.topic, queue, offset)


@pytest.mark.parametrize("position", [0, COUNT - 7])
async def test_r8_what_an_operator_resets_at_the_broker_comes_again(
    shop: Shop, position: int
) -> None:
    """All from there on, once, as first deliveries, whether it was acked or not; and again, when he
    does it again.
    """
    await shop.open(1)
    one = await shop.start()
    await acked(one)
    for _ in range(2):
        await reset(shop, position)
        found = await one.collect(COUNT - position)
        assert len({*carried(found)}) == COUNT - position
        assert {each.record.offset for each in found} == {*range(position, COUNT)}
        detail = await told(one)
        assert f"to offset {position} or before" in detail
        assert "accepted: all from there on comes again" in detail
        assert await one.settle(SettleVerb.ACK, *found) == ["acked"] * len(found)
        await one.broker_told()
        await nothing_more(one)
    await acked(one, "after", 10)


async def test_r8_a_refused_reset_changes_nothing_and_is_told(shop: Shop) -> None:
    """New messages come, finished ones don't."""
    await shop.open(1)
    one = await shop.start(external_commit="refuse")
    await acked(one)
    await reset(shop, 5)
    detail = await told(one)
    assert "to offset 5 or before" in detail
    assert "refused: what is finished stays finished" in detail
    await acked(one, "after", 10)
    await nothing_more(one)
    refused = {"subscription": NAME, "decision": "refused"}
    registry = one.runtime.metrics.registry
    assert registry.get_sample_value("ackd_external_commits_total", refused) == 1


async def test_r8_a_reset_while_ackd_is_down_is_noticed(shop: Shop) -> None:
    """The broker was not started again meanwhile, and goes back further than a crash takes it."""
    await shop.open(2)
    one = await shop.start(asks=True)
    await acked(one)
    await asyncio.sleep(NOTE_MS / 1000)  # a note tells which run of the broker gave them
    await one.runtime.stop()
    await reset(shop, 0, 0)
    two = await shop.start("two", asks=True)
    detail = await told(two, 0)
    assert "to offset 0 or before; by `external_commit` that was accepted" in detail
    found = await two.collect(await _in_queue(shop, two, 0))
    assert {each.partition for each in found} == {0}
    assert await two.settle(SettleVerb.ACK, *found) == ["acked"] * len(found)
    await two.broker_told()
    await nothing_more(two)


async def test_r8_what_a_crash_or_a_reset_may_have_brought_is_told(shop: Shop) -> None:
    """Without `name_servers` nobody can tell: it is settled, and not silently."""
    await shop.open(1)
    one = await shop.start()
    await acked(one)
    await one.runtime.stop()
    await reset(shop, 0)
    two = await shop.start("two", asks=False)
    detail = await told(two, 0, "came-again")
    assert "if somebody reset the group, `ackd seek` brings them" in detail
    await nothing_more(two)


async def _in_queue(shop: Shop, worker: Worker, number: int) -> int:
    positions = worker.runtime._subscriptions[NAME].state.broker_positions
    assert positions is not None
    return (await positions.range(TopicPartition(shop.topic, number)))[1]
