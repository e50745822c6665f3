"""Filter expressions: the broker leaves messages out, and their gaps hold nothing up for ever."""

import pytest

from ackd.api.messages import SettleVerb
from ackd.core.ledger.unordered import UnorderedLedger
from ackd.engine.ownership import broker_acks
from ackd.ports import Outgoing
from tests.integration.rocketmq.shop import Shop, Worker, insist
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = 30
SQL = "sql92: amount > 100 AND region = 'north'"


async def _publish(worker: Worker) -> None:
    batch = [
        Outgoing(
            worker.shop.topic,
            None,
            b"%d" % number,
            (
                ("rocketmq-tag", (b"paid", b"due", b"void")[number % 3]),
                ("amount", b"%d" % (number * 10)),
                ("region", b"north" if number % 2 else b"south"),
            ),
        )
        for number in range(COUNT)
    ]
    await insist(lambda *these: worker.runtime._brokers["b"].publish(these), batch)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("paid || due", [n for n in range(COUNT) if n % 3 != 2]),
        (SQL, [n for n in range(COUNT) if n * 10 > 100 and n % 2]),
    ],
)
async def test_only_what_the_filter_lets_through_comes(
    shop: Shop, text: str, wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_acks, "LAPSE_MS", 1_000)
    monkeypatch.setattr(broker_acks, "LOOK_MS", 200)
    await shop.open(1)
    one = await shop.start(filter=text)
    await _publish(one)
    found = await one.collect(len(wanted))
    assert sorted(int(each.record.value or b"") for each in found) == wanted
    held, *over = sorted(found, key=lambda each: each.record.offset)
    last = over[-1].record.offset
    assert set(await one.settle(SettleVerb.ACK, *over)) == {"acked"}
    (partition,) = one.runtime._subscriptions["work"].partitions.owned.values()
    ledger = partition.ledger
    assert isinstance(ledger, UnorderedLedger)

    async def lapsed() -> bool:
        return ledger.finished.first_clear(held.record.offset + 1) > last

    # Gaps are over; the message that somebody works on is not.
    await wait_until_async(lapsed, "the gaps to lapse")
    assert ledger.watermark == held.record.offset
    assert await one.settle(SettleVerb.ACK, held) == ["acked"]

    async def over_all() -> bool:
        return ledger.watermark > last

    await wait_until_async(over_all, "nothing is left")
