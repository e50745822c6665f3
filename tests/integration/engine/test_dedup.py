"""Repeats by business key on real parts (R18): what is settled, and what must never be."""

import pytest

from ackd.api.messages import Delivery, SettleItem, SettleVerb, Status
from ackd.config.dedup import DedupSettings
from ackd.core.record.operations import Reset
from ackd.engine.runtime import Runtime
from ackd.ports import Outgoing, Stored
from tests.integration.engine.together import NAME, Sidecar, Together
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

BY_HEADER = DedupSettings(key="header:order")


async def publish(sidecar: Sidecar, *orders: str, partition: int = 0) -> None:
    """One message per order; the value says which of its messages it is."""
    batch = [
        Outgoing(
            sidecar.place.topic,
            None,
            f"{order}/{number}".encode(),
            (("order", order.encode()),),
            partition,
        )
        for number, order in enumerate(orders)
    ]
    stored = await sidecar.runtime._brokers["b"].publish(batch)
    assert all(isinstance(each, Stored) for each in stored)


async def settle(sidecar: Sidecar, do: SettleVerb, *found: Delivery) -> None:
    """Settle; it must work."""
    results = await sidecar.runtime.settle([SettleItem(d.lease, do, delay_ms=0) for d in found])
    assert all(each.error is None for each in results)


def values(found: list[Delivery]) -> list[str]:
    """What came."""
    return [(each.record.value or b"").decode() for each in found]


async def remembered(sidecar: Sidecar, count: int) -> None:
    """Wait for so many keys."""
    await keys_in_store(sidecar.runtime, sidecar.place.store.prefix, count)


async def keys_in_store(runtime: Runtime, prefix: str, count: int) -> None:
    """Wait until so many keys are in the store (behind their acks: until then repeats get in)."""

    async def there() -> bool:
        pipe = runtime._store._store.topology.node("")  # type: ignore[attr-defined]
        async with pipe.aux_link() as link:
            pattern = f"{prefix}:v1:{{seen:{NAME}}}:g*"
            (keys,) = await link.ask([("KEYS", pattern)])
            sizes = await link.ask([("HLEN", key) for key in keys]) if keys else []
        return bool(sum(sizes) >= count)

    await wait_until_async(there, "the acks to be remembered")


async def repeats(sidecar: Sidecar) -> int:
    """As `explain` says."""
    return (await sidecar.runtime.explain(NAME)).repeats


async def test_a_repeat_is_settled_and_two_in_flight_are_both_delivered(together: Together) -> None:
    one = await together.start("one", dedup=BY_HEADER)
    await publish(one, "a", "b", "a")
    first = await one.collect(3)
    assert values(first) == ["a/0", "b/1", "a/2"], "nothing is acked yet"
    await settle(one, SettleVerb.ACK, *first[:2])
    await remembered(one, 2)
    await settle(one, SettleVerb.RETRY, first[2])
    await publish(one, "b", "c", "a")
    found = await one.collect(1)
    assert values(found) == ["c/1"]
    await settle(one, SettleVerb.ACK, *found)

    async def all_finished() -> bool:
        assert not (await one.receive(wait_ms=100)).messages
        rows = await one.runtime.lag(NAME)
        return sum(row.watermark for row in rows if row.partition == 0) == 6

    await wait_until_async(all_finished, "the watermark")
    assert await repeats(one) == 3, "the retry was one, too"
    assert one.runtime.metrics.dedup_repeats.at(NAME)._value == 3


async def test_what_was_not_acked_hides_nothing(together: Together) -> None:
    """R18, S1: failed, expired and dead messages make no entry; a late ack of a lost lease too."""
    one = await together.start("one", dedup=BY_HEADER, lease_ms=300, attempts_max=1)
    await publish(one, "dead", "lost")
    dead, lost = await one.collect(2)
    await settle(one, SettleVerb.DEAD, dead)

    async def expired() -> bool:
        return (await one.runtime.lease(lost.lease)).state != "leased"

    await wait_until_async(expired, "the lease to end")
    await wait_until_async(lambda: _gone(one, lost), "the message to be given up")
    (late,) = await one.runtime.settle([SettleItem(lost.lease, SettleVerb.ACK)])
    assert late.status is Status.LOST
    await publish(one, "dead", "lost")
    assert values(await one.collect(2)) == ["dead/0", "lost/1"]
    assert await repeats(one) == 0


async def _gone(sidecar: Sidecar, delivery: Delivery) -> bool:
    return (await sidecar.runtime.lease(delivery.lease)).state in {"dead", "lost"}


async def test_an_ack_at_any_sidecar_counts_for_messages_of_every_partition(
    together: Together,
) -> None:
    one, two = await together.pair(dedup=DedupSettings(key="pointer:/order/id"))
    partitions = [(await one.owned())[0], (await two.owned())[0]]

    async def send(partition: int) -> None:
        value = b'{"order": {"id": 7}}'
        message = Outgoing(together.topic, None, value, (), partition)
        await one.runtime._brokers["b"].publish([message])

    await send(partitions[0])
    found = await one.collect(1)
    await settle(two, SettleVerb.ACK, *found)  # its owner reads it in the journal
    await remembered(one, 1)
    await send(partitions[1])
    await send(partitions[0])

    async def both() -> bool:
        return await repeats(one) + await repeats(two) == 2

    async def settled() -> bool:
        for each in (one, two):
            assert not (await each.receive(wait_ms=100)).messages
        return await both()

    await wait_until_async(settled, "both to be settled")


async def test_after_a_reset_everything_comes(together: Together) -> None:
    """R18, S2: an operator who replays gets the messages, although their keys were acked."""
    one = await together.start("one", dedup=BY_HEADER)
    await publish(one, "a", "b")
    await settle(one, SettleVerb.ACK, *(await one.collect(2)))
    await remembered(one, 2)
    await publish(one, "a")
    subscription = one.runtime._of(NAME)

    async def settled() -> bool:
        assert not (await one.receive(wait_ms=100)).messages
        return await repeats(one) == 1

    await wait_until_async(settled, "the repeat")
    partition = next(p for p in subscription.partitions.owned.values() if p.tp.partition == 0)
    await subscription.context.flusher.submit(partition.handle, [Reset(0)])
    subscription.ownership.drop(partition, over=True)
    subscription.ownership.take(partition.tp)
    again = await one.collect(3)
    assert values(again) == ["a/0", "b/1", "a/0"]
    await settle(one, SettleVerb.ACK, *again)


async def test_keys_of_all_kinds(together: Together) -> None:
    one = await together.start("one", dedup=DedupSettings(key="pointer:/k"))
    topic = together.topic
    bodies = [b'{"k": 1}', b'{"k": "1"}', b'{"k": null}', b"no json", None, b'{"k": {"x": 1}}']
    for _ in range(2):
        await one.runtime._brokers["b"].publish(
            [Outgoing(topic, None, body, (), 0) for body in bodies]
        )
    first = await one.collect(6)
    await settle(one, SettleVerb.ACK, *first)
    await remembered(one, 2)
    second = await one.collect(4)
    assert [each.record.value for each in second] == bodies[2:]
    assert await repeats(one) == 2


async def test_without_the_store_nothing_is_lost_and_off_costs_nothing(together: Together) -> None:
    one = await together.start("one")
    assert one.runtime._of(NAME).dedup is None
    await publish(one, "a", "a")
    assert values(await one.collect(2)) == ["a/0", "a/1"]
