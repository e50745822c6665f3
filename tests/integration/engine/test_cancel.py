"""An operator cancels one message; whoever works on it hears of it at the next extend."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ackd.api.control import CancelTo
from ackd.api.messages import SettleVerb
from ackd.engine.base.live import Live
from ackd.engine.control import cancel
from ackd.errors import NotInFlightError, StoreError
from tests.integration.engine.shop import NAME, Shop, Worker
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
SOON: dict[str, Any] = {"stuck_after_ms": 300, "stuck_min_age_ms": 300}
BOTH = pytest.mark.parametrize("then", ["dead", "ack"])


@pytest.fixture(params=["memory", "valkey"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """On either kind of store."""
    url = "" if request.param == "memory" else request.getfixturevalue("valkey").url
    async with AsyncExitStack() as stack:
        yield Shop(stack, tmp_path, url)


async def over(worker: Worker, then: CancelTo, message: str) -> None:
    """It is finished in the way that was asked for, and never comes again."""
    if then == "dead":
        [letter] = await worker.dead(1)
        assert (letter.message, letter.reason) == (message, "cancelled: wrong video")
    assert (await worker.receive(wait_ms=700)).messages == []

    async def done() -> bool:
        rows = await worker.runtime.lag(NAME)
        return all(row.leased == row.retrying == row.ready == 0 for row in rows)

    await wait_until_async(done, "nothing to be left")
    if then == "ack":
        assert (await worker.runtime.dead.page(NAME, None, 10)).messages == []


@BOTH
async def test_a_leased_message(shop: Shop, then: CancelTo) -> None:
    worker = await shop.start()
    await worker.publish(1)
    held = await worker.one(lease_ms=60_000)
    done = await worker.runtime.cancel(NAME, held.id, then, "wrong video")
    assert done.done == {"dead": "dead", "ack": "acked"}[then]
    told = await worker.settle(held, SettleVerb.EXTEND)
    assert told.status == "lost"
    assert told.cancelled is not None
    assert (told.cancelled.then, told.cancelled.reason) == (then, "wrong video")
    late = await worker.settle(held, SettleVerb.ACK)
    assert late.status == ("already_acked" if then == "ack" else "lost")
    await over(worker, then, held.id)
    assert worker.metric("ackd_cancels_total", outcome=done.done) == 1


@BOTH
async def test_a_message_that_waits_for_its_retry(shop: Shop, then: CancelTo) -> None:
    worker = await shop.start()
    await worker.publish(1)
    held = await worker.one()
    await worker.settle(held, SettleVerb.RETRY, delay_ms=2_000)
    await worker.runtime.cancel(NAME, held.id, then, "wrong video")
    assert (await worker.settle(held, SettleVerb.RETRY)).status == "lost"
    await over(worker, then, held.id)


@BOTH
async def test_a_moved_message_and_its_copy(shop: Shop, then: CancelTo) -> None:
    """R2: the lease is in the origin record, the copy asks there; later the copy has the lease."""
    worker = await shop.start(**SOON)
    await worker.publish(2)
    stuck, other = await worker.collect(2, lease_ms=60_000)
    await worker.settle(other, SettleVerb.ACK)
    await worker.moved()
    await worker.runtime.cancel(NAME, stuck.id, then, "wrong video")
    told = await worker.settle(stuck, SettleVerb.EXTEND)
    assert (told.status, told.cancelled and told.cancelled.then) == ("lost", then)
    await over(worker, then, stuck.id)


async def test_a_copy_under_its_own_lease(shop: Shop) -> None:
    worker = await shop.start(**SOON)
    await worker.publish(2)
    stuck, other = await worker.collect(2, lease_ms=60_000)
    await worker.settle(other, SettleVerb.ACK)
    await worker.settle(stuck, SettleVerb.EXTEND, lease_ms=1_000)
    copy = await worker.one(lease_ms=60_000)
    assert copy.id == stuck.id
    await worker.runtime.cancel(NAME, stuck.id, "dead", "wrong video")
    told = await worker.settle(copy, SettleVerb.EXTEND)
    assert (told.status, told.cancelled is not None) == ("lost", True)
    await over(worker, "dead", stuck.id)


@BOTH
@pytest.mark.parametrize("forwarded", [False, True])
async def test_i6_a_cancelled_message_frees_its_key(
    shop: Shop, then: CancelTo, *, forwarded: bool
) -> None:
    """Where it is, and when its key was sent back as a whole (R19)."""
    worker = await shop.start(ordering="key", **(SOON if forwarded else {}))
    await worker.publish(3, key=b"k")
    first = await worker.one(lease_ms=60_000)
    if forwarded:
        await worker.moved()
    assert (await worker.receive(wait_ms=100)).messages == []
    await worker.runtime.cancel(NAME, first.id, then, "wrong video")
    for offset in (1, 2):
        message = await worker.one(lease_ms=60_000)
        assert message.id == f"{shop.topic}/0/{offset}"
        assert (await worker.settle(message, SettleVerb.ACK)).status == "acked"
    await over(worker, then, first.id)


async def test_any_sidecar_may_be_asked_and_any_may_be_told(shop: Shop) -> None:
    """The one that has the message does it; the wish is in the store meanwhile."""
    one = await shop.start("one")
    await one.publish(1)
    held = await one.one(lease_ms=60_000)
    two = await shop.start("two")
    done = await two.runtime.cancel(NAME, held.id, "dead", "wrong video")
    assert done.done == "dead"
    for sidecar in (one, two):

        async def told(sidecar: Worker = sidecar) -> bool:
            result = await sidecar.settle(held, SettleVerb.EXTEND)
            assert result.status == "lost"
            return result.cancelled is not None

        await wait_until_async(told, "the sidecar to say so")
    await over(one, "dead", held.id)


async def test_what_is_not_in_flight_can_not_be_cancelled(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel, "WAIT_MS", 500)
    worker = await shop.start()
    await worker.publish(2)
    held = await worker.one()
    await worker.settle(held, SettleVerb.ACK)
    for message in (held.id, f"{shop.topic}/0/1", f"{shop.topic}/7/0"):
        with pytest.raises(NotInFlightError):
            await worker.runtime.cancel(NAME, message, "dead", "")
    assert worker.subscription.state.live.cancels == []
    assert (await worker.one()).id == f"{shop.topic}/0/1"


async def test_a_cancel_that_could_not_be_told_at_once_is_told_later(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done once; only the others learn it late."""
    worker = await shop.start()
    await worker.publish(1)
    held = await worker.one(lease_ms=60_000)
    control = worker.subscription.control
    change, calls = control.change, itertools.count()

    async def fails_twice(edit: Callable[[Live], Live]) -> None:
        if next(calls) in {1, 2}:
            raise StoreError("away")
        await change(edit)

    monkeypatch.setattr(control, "change", fails_twice)
    assert (await worker.runtime.cancel(NAME, held.id, "ack", "")).done == "acked"
    assert next(calls) == 4
    assert worker.metric("ackd_cancels_total", outcome="acked") == 1
