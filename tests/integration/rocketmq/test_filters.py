"""Filter expressions: the broker leaves messages out, and their gaps hold nothing up (I5), while no
message that passes is lost (I1).
"""

import asyncio
import random

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.engine.ownership import gaps
from ackd.errors import AckdError, BrokerError
from ackd.ports import Outgoing
from tests.integration.rocketmq.shop import NAME, Shop, Worker, insist
from tests.support.limits import limit
from tests.support.rocketmq.timers import judged
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 30
SQL = "sql92: amount > 100 AND region = 'north'"
PASSED_S = 20
"""What the docs promise: ten seconds, and how long a question for messages waits."""


def _message(worker: Worker, number: int) -> Outgoing:
    return Outgoing(
        worker.shop.topic,
        None,
        b"%d" % number,
        (
            ("rocketmq-tag", (b"paid", b"due", b"void")[number % 3]),
            ("amount", b"%d" % (number * 10)),
            ("region", b"north" if number % 2 else b"south"),
        ),
    )


async def _publish(worker: Worker, *numbers: int) -> None:
    batch = [_message(worker, number) for number in numbers]
    await insist(lambda *these: worker.runtime._brokers["b"].publish(these), batch)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("paid || due", [n for n in range(COUNT) if n % 3 != 2]),
        (SQL, [n for n in range(COUNT) if n * 10 > 100 and n % 2]),
    ],
)
async def test_only_what_the_filter_lets_through_comes_and_the_rest_holds_nothing_up(
    shop: Shop, text: str, wanted: list[int]
) -> None:
    await shop.open(1)
    one = await shop.start(filter=text)
    await _publish(one, *range(COUNT))
    found = await one.collect(len(wanted))
    assert sorted(int(each.record.value or b"") for each in found) == wanted
    held, *over = sorted(found, key=lambda each: each.record.offset)
    last = over[-1].record.offset
    assert set(await one.settle(SettleVerb.ACK, *over)) == {"acked"}
    (partition,) = one.runtime._subscriptions[NAME].partitions.owned.values()
    ledger = partition.ledger

    async def passed() -> bool:
        return ledger.finished.first_clear(held.record.offset + 1) > last

    # Gaps are over; the message that somebody works on is not.
    await wait_until_async(passed, "the gaps to be over", timeout_s=limit(PASSED_S, busy=60))
    assert ledger.watermark == held.record.offset
    assert await one.settle(SettleVerb.ACK, held) == ["acked"]

    async def over_all() -> bool:
        return ledger.watermark > last

    await wait_until_async(over_all, "nothing is left")


async def test_i1_i5_nothing_that_passes_is_lost_over_two_kills_of_the_broker(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the watermark reaches the end. The wait after a failure is a third of the real one here,
    which is above what a broker forgets by default (15 s after its start, else 5 s).
    """
    monkeypatch.setattr(gaps, "BROKEN_MS", 20_000)
    monkeypatch.setattr(gaps, "PASSED_MS", 3_000)
    rng = random.Random(17)
    await shop.open(2)
    one = await shop.start(filter="paid || due", lease_ms=60_000)
    wanted, seen, acked = set[bytes](), list[bytes](), set[bytes]()
    stop = asyncio.Event()

    async def works() -> None:
        while not stop.is_set():
            try:
                found: list[Delivery] = await one.receive(20, wait_ms=500)
                assert not acked & {each.record.value for each in found}
                seen.extend(each.record.value or b"" for each in found)
                told = await one.settle(SettleVerb.ACK, *found)
            except AckdError:
                continue
            acked.update(
                each.record.value or b""
                for each, status in zip(found, told, strict=True)
                if status == "acked"
            )

    async def some_more(number: int) -> None:
        batch = range(number, number + 60)
        wanted.update(b"%d" % each for each in batch if each % 3 != 2)
        for start in range(number, number + 60, 6):
            await _publish(one, *batch[start - number : start - number + 6])
            await asyncio.sleep(rng.uniform(0, 0.2))

    async def there() -> bool:
        return await one.runtime._brokers["b"].partitions(shop.topic) == 2

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(works())
        for kill in range(3):
            await some_more(kill * 60)
            if kill < 2:
                await asyncio.to_thread(shop.rocketmq.proxy.kill)
                await asyncio.to_thread(shop.rocketmq.restart, shop.rocketmq.proxy)
                await wait_until_async(there, "the broker is back", ignoring=(BrokerError,))
        owned = one.runtime._subscriptions[NAME].partitions.owned

        async def ended() -> bool:
            return wanted <= acked

        async def passed() -> bool:
            return all(each.ledger.watermark >= each.ledger.position for each in owned.values())

        try:
            with judged(shop.rocketmq):
                await wait_until_async(ended, "all that passes has come", timeout_s=90)
            await wait_until_async(passed, "no gap holds the watermark", timeout_s=60)
        finally:
            stop.set()
    assert set(seen) == wanted
