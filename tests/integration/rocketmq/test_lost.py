"""Messages that the broker gave and never brings again: found by their offsets, read from its log
(I1); what comes after all is not delivered twice (I2).
"""

from collections import Counter

import pytest

from ackd.api.messages import SettleVerb
from ackd.engine.ownership import gaps, lost_messages
from ackd.ports import Outgoing
from tests.integration.rocketmq.shop import HOLD_MS, NAME, Shop, Worker, insist
from tests.support.rocketmq.between import between
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = 60
LOST = {b"%d" % each for each in range(0, COUNT, 7)}
VALUES = [b"%d" % each for each in range(COUNT)]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the waiting."""
    monkeypatch.setattr(lost_messages, "LOST_MS", 3_000)
    monkeypatch.setattr(lost_messages, "LOOK_MS", 1_000)
    monkeypatch.setattr(lost_messages, "HURRIED_MS", 1_000)


class Got:
    """What came, all of it acked at once."""

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()

    async def until(self, worker: Worker, *values: bytes, within_s: float = 60) -> None:
        async def all_came() -> bool:
            found = await worker.receive(wait_ms=500)
            self.seen.update(each.record.value or b"" for each in found)
            assert set(await worker.settle(SettleVerb.ACK, *found)) <= {"acked"}
            return self.seen.keys() >= {*values}

        try:
            await wait_until_async(all_came, "all have come", timeout_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {sorted({*values} - self.seen.keys())}") from None

    async def no_more(self, worker: Worker, quiet_s: float) -> None:
        for _ in range(round(quiet_s * 2)):
            found = await worker.receive(wait_ms=500)
            assert not found, [each.record.value for each in found]


async def _nothing_open(worker: Worker) -> None:
    owned = worker.runtime._subscriptions[NAME].partitions.owned

    async def over() -> bool:
        return all(each.ledger.watermark >= each.ledger.position for each in owned.values())

    await wait_until_async(over, "nothing holds the watermark", timeout_s=60)


@pytest.mark.parametrize("waits", ["default", "soon"])
async def test_i1_what_the_broker_gave_and_lost_is_read_from_its_log(
    shop: Shop, request: pytest.FixtureRequest, waits: str
) -> None:
    """Also the newest message of a queue, behind which nothing came."""
    if waits == "soon":
        request.getfixturevalue("soon")
    await shop.open(2)
    got = Got()
    async with between(shop.rocketmq.endpoints) as it:
        it.swallows = lambda body: body in {*LOST, VALUES[-1], VALUES[-2]}
        one = await shop.start(endpoints=it.endpoints)
        await one.stored(*VALUES)
        await got.until(one, *VALUES, within_s=90)
        assert {*it.swallowed} == {*LOST, VALUES[-1], VALUES[-2]}
        recovered = one.metric("ackd_recovered_from_log_total")
        assert recovered >= len({*it.swallowed})
        if waits == "default":  # else what is only late on a busy machine is read, too
            assert recovered == len({*it.swallowed})
        await _nothing_open(one)
        await got.no_more(one, 3)
    assert {*got.seen.values()} == {1}
    assert got.seen.keys() == {*VALUES}


@pytest.mark.usefixtures("soon")
async def test_i1_the_next_owner_finds_what_the_broker_lost_with_the_one_of_before(
    shop: Shop,
) -> None:
    await shop.open(2)
    got = Got()
    async with between(shop.rocketmq.endpoints) as it:
        it.swallows = lambda body: body in LOST
        one = await shop.start(endpoints=it.endpoints)
        await one.stored(*VALUES)
        await got.until(one, *({*VALUES} - LOST))
        await one.runtime.stop()
    two = await shop.start("two")
    await got.until(two, *VALUES)
    await _nothing_open(two)
    assert {*got.seen.values()} == {1}


@pytest.mark.usefixtures("soon")
async def test_i2_what_came_as_a_copy_and_was_acked_is_not_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id was unknown, so that it has a place of its own; its first place is over, too."""
    monkeypatch.setattr(lost_messages, "LOST_MS", 15_000)
    await shop.open(2)
    got = Got()
    async with between(shop.rocketmq.endpoints) as it:
        it.forgets = False
        it.swallows = lambda body: body in LOST and body not in it.swallowed
        one = await shop.start(endpoints=it.endpoints)
        await one.stored(*VALUES)
        await got.until(one, *VALUES)
        await _nothing_open(one)
        await got.no_more(one, 5)
        assert {*it.swallowed} == LOST
        assert one.metric("ackd_recovered_from_log_total") == 0
    assert {*got.seen.values()} == {1}


@pytest.mark.usefixtures("soon")
async def test_i2_a_copy_that_comes_after_the_read_is_settled(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_messages, "LOST_MS", 500 - HOLD_MS)
    await shop.open(1)
    got = Got()
    async with between(shop.rocketmq.endpoints) as it:
        it.forgets = False
        it.swallows = lambda body: body in LOST and body not in it.swallowed
        one = await shop.start(endpoints=it.endpoints)
        await one.stored(*VALUES)
        await got.until(one, *VALUES)
        # On a busy machine what is only late is read, too.
        recovered = one.metric("ackd_recovered_from_log_total")
        assert recovered >= len(LOST)

        async def settled() -> bool:
            assert not await one.receive(wait_ms=200)
            return one.metric("ackd_acked_again_total") >= recovered

        await wait_until_async(settled, "the copies have come", timeout_s=60)
    assert {*got.seen.values()} == {1}


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("text", ["paid || due", "sql92: amount > 100"])
async def test_i1_behind_a_filter_only_what_passes_is_read(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Here no poll of the first sidecar fails, as one does of which the broker loses something: it
    must not pass over what is missing.
    """
    monkeypatch.setattr(gaps, "PASSED_MS", 600_000)
    await shop.open(1)
    got = Got()
    passing = {value for value in VALUES if int(value) % 3 != 2 and int(value) > 10}

    def message(value: bytes) -> Outgoing:
        number = int(value)
        tag = b"void" if value not in passing else (b"paid", b"due")[number % 3]
        amount = b"%d" % (1_000 if value in passing else 1)
        return Outgoing(shop.topic, None, value, (("rocketmq-tag", tag), ("amount", amount)))

    async with between(shop.rocketmq.endpoints) as it:
        it.swallows = lambda body: body in LOST
        one = await shop.start(endpoints=it.endpoints, filter=text)
        batch = [message(value) for value in VALUES]
        await insist(lambda *these: one.runtime._brokers["b"].publish(these), batch)
        await got.until(one, *(passing - LOST))
        await one.runtime.stop()
    two = await shop.start("two", filter=text)
    await got.until(two, *passing)
    assert got.seen.keys() == passing
    assert {*got.seen.values()} == {1}


@pytest.mark.usefixtures("soon")
async def test_i1_without_name_servers_readiness_names_what_may_be_lost(shop: Shop) -> None:
    await shop.open(1)
    got = Got()
    async with between(shop.rocketmq.endpoints) as it:
        it.swallows = lambda body: body in {b"7", b"14"}
        one = await shop.start(endpoints=it.endpoints, asks=False)
        for value in VALUES[:20]:
            await one.stored(value)
        await got.until(one, *({*VALUES[:20]} - {b"7", b"14"}))

        async def named() -> bool:
            told = [
                each.detail for each in one.runtime.readiness() if "did not come" in each.detail
            ]
            return any("2 messages" in each and "of offsets 7 to 14" in each for each in told)

        await wait_until_async(named, "readiness names them", timeout_s=60)
        assert all(each.ok for each in one.runtime.readiness())
