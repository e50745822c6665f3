"""Progress notes: what a worker said with its last extend comes with the next attempt."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ackd.api.messages import SettleVerb, Status
from ackd.core.ids import LedgerKey
from ackd.core.record.protocol import MessageTexts, RecordCall, RecordReply
from ackd.errors import StoreError
from tests.integration.engine.shop import Shop, Worker
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
SOON: dict[str, Any] = {"stuck_after_ms": 300, "stuck_min_age_ms": 300}


@pytest.fixture(params=["memory", "valkey"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """On either kind of store."""
    url = "" if request.param == "memory" else request.getfixturevalue("valkey").url
    async with AsyncExitStack() as stack:
        yield Shop(stack, tmp_path, url)


async def kept(worker: Worker, offsets: int = 10) -> list[bytes | None]:
    """The notes that the store has of the topic's partition."""
    subscription = worker.subscription
    [key] = [
        p.key for tp, p in subscription.partitions.owned.items() if tp.topic == worker.shop.topic
    ]
    found = await worker.runtime._store.texts(key, range(offsets))
    return [None if each is None else each.note or None for each in found]


async def test_a_note_comes_with_the_next_attempt_until_the_message_is_acked(shop: Shop) -> None:
    worker = await shop.start()
    await worker.publish(2)
    first, other = await worker.collect(2, lease_ms=60_000)
    assert (first.note, other.note) == (None, None)
    await worker.said(first, "frame 10")
    await worker.said(first, "frame 20 ✓")
    # Without a note an extend leaves the last one as it is.
    assert (await worker.settle(first, SettleVerb.EXTEND, lease_ms=500)).status == "extended"
    await worker.settle(other, SettleVerb.RELEASE)
    found = {each.record.offset: each for each in await worker.collect(2, lease_ms=60_000)}
    assert {offset: each.note for offset, each in found.items()} == {0: "frame 20 ✓", 1: None}
    assert await worker.all([found[0]], SettleVerb.RETRY, delay_ms=1) == ["retrying"]
    again = await worker.one()
    assert (again.note, again.attempt) == ("frame 20 ✓", 3)
    assert (await worker.settle(again, SettleVerb.ACK)).status == "acked"

    async def gone() -> bool:
        return await kept(worker) == [None] * 10

    await wait_until_async(gone, "the note to be dropped")
    assert worker.metric("ackd_notes_total") == 2


async def test_an_empty_note_takes_the_last_one_away(shop: Shop) -> None:
    worker = await shop.start()
    await worker.publish(1)
    first = await worker.one(lease_ms=60_000)
    await worker.said(first, "half")
    await worker.said(first, "")
    await worker.settle(first, SettleVerb.RELEASE)
    assert (await worker.one()).note is None


async def test_a_note_of_a_lost_lease_and_one_that_is_too_long_change_nothing(shop: Shop) -> None:
    worker = await shop.start()
    await worker.publish(1)
    first = await worker.one(lease_ms=60_000)
    await worker.said(first, "x" * 4096)
    result = await worker.settle(first, SettleVerb.EXTEND, note="ü" * 2049)
    assert result.status is Status.INVALID
    assert "4096" in str(result.error)
    await worker.settle(first, SettleVerb.RELEASE)
    second = await worker.one(lease_ms=60_000)
    lost = await worker.settle(first, SettleVerb.EXTEND, note="late")
    assert (lost.status, lost.now_state, lost.cancelled) == ("lost", "leased", None)
    await worker.settle(second, SettleVerb.RELEASE)
    assert (await worker.one()).note == "x" * 4096


async def test_notes_go_with_a_message_that_was_sent_back_and_with_its_copy(shop: Shop) -> None:
    """R2: said under the forwarded lease of the message, then under the lease of its copy."""
    worker = await shop.start(**SOON)
    await worker.publish(2)
    stuck, other = await worker.collect(2, lease_ms=60_000)
    await worker.said(stuck, "before", lease_ms=60_000)
    await worker.settle(other, SettleVerb.ACK)
    await worker.moved()
    await worker.said(stuck, "moved", lease_ms=1_000)
    copy = await worker.one(lease_ms=60_000)
    assert (copy.id, copy.note) == (stuck.id, "moved")
    await worker.said(copy, "as a copy")
    await worker.settle(copy, SettleVerb.RELEASE)
    again = await worker.one(lease_ms=60_000)
    assert (again.id, again.note) == (stuck.id, "as a copy")
    await worker.settle(again, SettleVerb.ACK)

    async def gone() -> bool:
        return await kept(worker) == [None] * 10

    await wait_until_async(gone, "both notes to be dropped")


async def test_another_sidecar_gets_the_note_and_may_write_the_next(shop: Shop) -> None:
    """Settled elsewhere, taken over: the note is in the store, not in a process."""
    one = await shop.start("one")
    await one.publish(1)
    first = await one.one(lease_ms=60_000)
    two = await shop.start("two")
    await two.said(first, "said to the other one")
    await one.runtime.stop()
    await two.settle(first, SettleVerb.RELEASE)
    second = await two.one(wait_ms=30_000, lease_ms=60_000)
    assert second.note == "said to the other one"
    await two.said(second, "and on")
    three = await shop.start("three")
    await two.runtime.stop()
    await three.settle(second, SettleVerb.RELEASE)
    assert (await three.one(wait_ms=30_000)).note == "and on"


async def test_i8_the_oldest_notes_are_dropped_at_the_bound(shop: Shop) -> None:
    worker = await shop.start(notes_bytes_max=65_536)
    await worker.publish(20)
    messages = await worker.collect(20, lease_ms=60_000)
    for message in messages:
        await worker.said(message, f"{message.record.offset:04096}")
    assert worker.metric("ackd_notes_dropped_total") == 4
    assert [note is None for note in await kept(worker, 20)] == [True] * 4 + [False] * 16


async def test_i7_an_extend_whose_note_is_not_durable_is_no_success(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await shop.start()
    await worker.publish(1)
    first = await worker.one(lease_ms=60_000)
    await worker.said(first, "good")

    async def away(_calls: list[RecordCall]) -> list[RecordReply]:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(worker.runtime._store, "apply", away)
        result = await worker.settle(first, SettleVerb.EXTEND, note="bad")
        assert result.status is Status.UNAVAILABLE
    await worker.settle(first, SettleVerb.RELEASE)

    async def unreadable(_key: LedgerKey, _offsets: list[int]) -> list[MessageTexts | None]:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(worker.runtime._store, "texts", unreadable)
        with pytest.raises(StoreError):
            await worker.one()
    again = await worker.one()
    assert (again.note, again.attempt) == ("good", 1)


async def test_a_repeated_receive_gets_the_note_too(shop: Shop) -> None:
    """R21: `attempt_id`."""
    worker = await shop.start()
    await worker.publish(1)
    first = await worker.one(lease_ms=60_000)
    await worker.said(first, "half")
    await worker.settle(first, SettleVerb.RELEASE)
    answers = [await worker.receive(attempt_id="a") for _ in range(2)]  # type: ignore[arg-type]
    assert [each.replayed for each in answers] == [False, True]
    assert [each.messages[0].note for each in answers] == ["half", "half"]


async def test_without_notes_nobody_asks_for_any(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not used costs nothing: the store is not asked."""
    worker = await shop.start()
    await worker.publish(3)
    asked: list[int] = []
    monkeypatch.setattr(worker.runtime._store, "texts", lambda *_: asked.append(1))
    for message in await worker.collect(3, lease_ms=60_000):
        await worker.settle(message, SettleVerb.EXTEND)
        await worker.settle(message, SettleVerb.RELEASE)
    assert len(await worker.collect(3)) == 3
    assert not asked
