"""Somebody resets the group at the broker alone, as `mqadmin resetOffsetByTime` does: it is
told, and replayed only when that is ordered, as a crash looks like it (I2, R8).
"""

import asyncio

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.api.progress import Position, SeekRequest, SeekTo
from ackd.core.sources import COPIES
from ackd.engine.ownership import broker_resets
from tests.integration.rocketmq.seeking import seek
from tests.integration.rocketmq.shop import NAME, Shop, Worker
from tests.support.rocketmq.bare import bare
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


async def told(worker: Worker, queue: int = 0, kind: str = "came-again") -> str:
    """What readiness says of it, and stays green."""
    conditions = worker.runtime._subscriptions[NAME].state.conditions
    code = f"{kind}/{worker.shop.topic}/{queue}"

    async def noticed() -> bool:
        ready = [each.detail for each in worker.runtime.readiness() if each.ok]
        return code in conditions and any(conditions[code].detail in each for each in ready)

    await wait_until_async(noticed, "readiness tells of it", timeout_s=60)
    return conditions[code].detail


async def told_no_more(worker: Worker, queue: int = 0, kind: str = "came-again") -> None:
    """Readiness says nothing of it any more."""
    conditions = worker.runtime._subscriptions[NAME].state.conditions

    async def silent() -> bool:
        return f"{kind}/{worker.shop.topic}/{queue}" not in conditions

    await wait_until_async(silent, "readiness tells of it no more", timeout_s=60)


async def nothing_more(worker: Worker) -> None:
    """Nothing comes that was acked."""
    assert await worker.receive(wait_ms=8_000) == []


async def reset(shop: Shop, offset: int, queue: int = 0) -> None:
    """As the operator does it."""
    await asyncio.to_thread(shop.rocketmq.admin.reset, shop.topic, shop.topic, queue, offset)


async def all_told(worker: Worker, count: int) -> str:
    """Readiness tells of so many, at last."""

    async def counted() -> bool:
        return f"{count} finished messages came again" in await told(worker)

    await wait_until_async(counted, "all are told", timeout_s=60)
    return await told(worker)


@pytest.mark.parametrize("position", [0, COUNT - 7])
async def test_i2_r8_a_reset_at_the_broker_alone_is_told_and_replayed_by_order(
    shop: Shop, position: int
) -> None:
    """Nothing that was acked comes by itself, all from there on by the seek that readiness names,
    and what is new in any case.
    """
    await shop.open(1)
    one = await shop.start()
    await acked(one)
    await reset(shop, position)
    detail = await all_told(one, COUNT - position)
    assert f"of offsets {position} to {COUNT - 1}" in detail
    await nothing_more(one)
    await acked(one, "new", 3)
    order = f"`ackd seek {NAME} --position {shop.topic}/0={position}`"
    assert order in detail
    to = Position(shop.topic, 0, position)
    await seek(one, SeekRequest(SeekTo.POSITIONS, positions=(to,)))
    again = await one.collect(COUNT + 3 - position)
    assert {each.record.offset for each in again} == {*range(position, COUNT + 3)}
    assert await one.settle(SettleVerb.ACK, *again) == ["acked"] * len(again)
    await one.broker_told()
    await nothing_more(one)


@pytest.mark.parametrize("asks", [True, False])
async def test_i2_r8_a_reset_while_ackd_is_down_is_told(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, asks: bool
) -> None:
    """For sure where the brokers can be asked, and were calm before that; else as what may be."""
    monkeypatch.setattr(broker_resets, "CALM_MS", 5_000)
    await shop.open(2)
    one = await shop.start(asks=asks)
    await acked(one)
    if asks:
        await noted(one)
    await one.runtime.stop()
    await reset(shop, 0, 0)
    two = await shop.start("two", asks=asks)
    detail = await told(two, 0)
    if asks:
        assert "not started again since, so it looks like a reset" in detail
    else:
        assert "either the broker forgot its last acks" in detail
    await nothing_more(two)
    await acked(two, "after", 10)


async def test_i2_what_came_first_as_a_copy_is_finished_where_it_was_stored_too(shop: Shop) -> None:
    """Its first delivery reached nobody. After the ack of its copy the broker goes back, as in a
    crash soon after a hand-over. It was taken for a new message.
    """
    async with bare(shop.rocketmq) as it:
        shop.topic, group = it.topic, f"g{it.topic}"
        await it.send(b"early")
        await it.take_some(1)
        one = await shop.start(group=group, asks=False)  # else the gap there is over after a while
        await it.send(b"other")
        both = await one.collect(2)
        assert {each.record.value: each.partition >= COPIES for each in both} == {
            b"early": True,
            b"other": False,
        }
        assert await one.settle(SettleVerb.ACK, *both) == ["acked"] * 2
        await one.broker_told()
        await asyncio.to_thread(shop.rocketmq.admin.reset, group, shop.topic, 0, 0)
        await it.send(b"new")
        (found,) = await one.collect(1)
        assert found.record.value == b"new"
        assert await one.settle(SettleVerb.ACK, found) == ["acked"]
        await nothing_more(one)
        assert one.metric("ackd_acked_again_total") >= 2


async def noted(worker: Worker) -> None:
    """The next owner will know which run of the broker gave the messages."""
    resets = worker.runtime._subscriptions[NAME].events.broker_side_acks._resets  # type: ignore[union-attr]

    async def known() -> bool:
        return bool(resets._runs) and all(each.noted for each in resets._runs.values())

    await wait_until_async(known, "the broker's run is noted", timeout_s=60)
