"""Work that takes long, or never ends: give up by time, circuit breaker, a full window,
forwarded leases.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ackd.api.messages import SettleVerb
from ackd.core.record.protocol import OpResult
from ackd.core.record.slot import RELEASES_MAX
from ackd.engine.retry.claims import _CopyClaim
from tests.integration.engine.shop import NAME, Shop, Worker
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
SOON: dict[str, Any] = {"stuck_after_ms": 300, "stuck_min_age_ms": 300}


@pytest.fixture(params=["memory", "valkey"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """On either kind of store."""
    url = "" if request.param == "memory" else request.getfixturevalue("valkey").url
    async with AsyncExitStack() as stack:
        yield Shop(stack, tmp_path, url)


def wall_ms() -> int:
    """Unix time."""
    return time.time_ns() // 1_000_000


# --- give up


@pytest.mark.parametrize("how", ["expired", "waiting", "released"])
async def test_a_message_is_given_up_by_time_however_few_attempts_it_had(
    shop: Shop, how: str
) -> None:
    """R28: also one that never uses an attempt up. A delay that ends later does not matter."""
    worker = await shop.start(message_ttl_ms=1_500, retry_topic=False, attempts_max=100)
    await worker.publish(2)
    held, other = await worker.collect(2, lease_ms=60_000)
    await worker.settle(other, SettleVerb.ACK)
    if how == "expired":
        await worker.settle(held, SettleVerb.EXTEND, lease_ms=200)
    if how == "waiting":
        await worker.settle(held, SettleVerb.RETRY, delay_ms=600_000, reason="no disk")
    found = [held]
    while how == "released" and found:
        # Fewer than a hundred in that time: further ones would count.
        await worker.settle(found[0], SettleVerb.RETRY, delay_ms=100, count=False)
        found = (await worker.receive(wait_ms=600)).messages
        assert all(each.attempt == 1 for each in found)
    [letter] = await worker.dead(1)
    assert letter.reason == "older than message_ttl_ms: 1.5 s after its first delivery"
    assert letter.last_error == ("no disk" if how == "waiting" else "")
    assert 1_500 <= letter.dead_ms - letter.first_seen_ms < 60_000
    assert (await worker.receive(wait_ms=300)).messages == []


async def test_i4_a_live_lease_is_never_given_up_and_its_ack_counts(shop: Shop) -> None:
    worker = await shop.start(message_ttl_ms=300, **SOON)
    await worker.publish(2)
    acked, expires = await worker.collect(2, lease_ms=60_000)
    await worker.moved()
    assert (await worker.settle(acked, SettleVerb.ACK)).status == "acked"
    shortened = await worker.settle(expires, SettleVerb.EXTEND, lease_ms=1_000)
    assert shortened.deadline_ms
    [letter] = await worker.dead(1)
    assert letter.message == expires.id
    assert letter.dead_ms >= shortened.deadline_ms


async def test_the_time_is_counted_on_by_another_sidecar(shop: Shop) -> None:
    """What counts is in the store: when the message was first handed out."""
    one = await shop.start("one", message_ttl_ms=2_000, retry_topic=False)
    await one.publish(1)
    first = await one.one(lease_ms=60_000)
    await one.settle(first, SettleVerb.RETRY, delay_ms=400_000)
    await one.runtime.stop()
    two = await shop.start("two", message_ttl_ms=2_000, retry_topic=False)
    [letter] = await two.dead(1)
    assert (letter.message, letter.first_seen_ms) == (first.id, first.first_seen_ms)
    assert letter.reason == "older than message_ttl_ms: 2 s after its first delivery"
    assert letter.dead_ms - letter.first_seen_ms >= 2_000


async def test_i4_a_change_of_the_time_takes_effect_at_once(shop: Shop) -> None:
    """On messages that wait for a retry, and on those that nobody asks for."""
    worker = await shop.start(retry_topic=False)
    await worker.publish(3)
    held = await worker.collect(3, lease_ms=60_000)
    await worker.settle(held[0], SettleVerb.RETRY, delay_ms=400_000)
    await worker.settle(held[1], SettleVerb.RELEASE)
    changes = {"message_ttl_ms": 1_000}
    await worker.runtime.configure(NAME, changes)
    letters = await worker.dead(2)
    assert {each.message for each in letters} == {held[0].id, held[1].id}
    assert {each.reason for each in letters} == {
        "older than message_ttl_ms: 1 s after its first delivery"
    }
    assert (await worker.settle(held[2], SettleVerb.ACK)).status == "acked"


async def test_r28_uncounted_give_backs_count_after_a_hundred(shop: Shop) -> None:
    worker = await shop.start(attempts_max=2, retry_topic=False)
    await worker.publish(1)
    for _ in range(RELEASES_MAX):
        message = await worker.one(lease_ms=60_000)
        assert message.attempt == 1
        await worker.settle(message, SettleVerb.RETRY, delay_ms=0, count=False)
    attempts = []
    for _ in range(2):
        message = await worker.one(lease_ms=60_000)
        attempts.append(message.attempt)
        await worker.settle(message, SettleVerb.RELEASE)
    assert attempts == [1, 2]
    [letter] = await worker.dead(1)
    assert letter.reason == "no attempt left after 2 deliveries"


# --- circuit breaker


async def fail(worker: Worker, count: int) -> None:
    """The application fails message after message."""
    for message in await worker.collect(count, lease_ms=60_000):
        result = await worker.settle(message, SettleVerb.RETRY, delay_ms=0, reason="no database")
        assert result.status == "retrying"


async def test_the_breaker_holds_all_but_trials_until_one_is_acked(shop: Shop) -> None:
    worker = await shop.start(
        circuit_breaker_failures=5, circuit_breaker_trial_ms=1_000, attempts_max=3
    )
    await worker.publish(20)
    in_time = await worker.one(lease_ms=60_000)
    # What is given back is no failure.
    for message in await worker.collect(8, lease_ms=60_000):
        await worker.settle(message, SettleVerb.RETRY, delay_ms=0, count=False)
    begin = time.monotonic()
    await fail(worker, 5)
    held = await worker.receive(wait_ms=0)
    assert (held.messages, held.limited_by) == ([], "circuit-breaker")
    assert worker.metric("ackd_circuit_breaker_open") == 1
    limits = (await worker.runtime.explain(NAME)).limits
    assert limits == ["circuit-breaker", "circuit-breaker: 5 failures in a row"]
    for _ in range(3):
        # One at a time, however many are asked for; more than two attempts, and none is burnt.
        [trial] = (await worker.receive(most=100)).messages
        assert trial.attempt <= 2
        assert (await worker.receive(most=100, wait_ms=0)).messages == []
        await worker.settle(trial, SettleVerb.RETRY, delay_ms=0)
    assert time.monotonic() - begin >= 1 + 1.5 + 2.25
    assert (await worker.settle(in_time, SettleVerb.EXTEND)).status == "extended"
    assert worker.metric("ackd_circuit_breaker_open") == 1
    assert (await worker.settle(in_time, SettleVerb.ACK)).status == "acked"
    assert len(await worker.collect(19)) == 19
    assert (
        worker.metric("ackd_circuit_breaker_open"),
        worker.metric("ackd_circuit_breaker_trips_total"),
    ) == (0, 1)
    assert (await worker.runtime.explain(NAME)).limits == []
    assert (await worker.runtime.dead.page(NAME, None, 10)).messages == []


async def test_expired_leases_pull_the_breaker_and_a_setting_lets_it_go(shop: Shop) -> None:
    worker = await shop.start(
        circuit_breaker_share=0.5, circuit_breaker_trial_ms=60_000, retry_topic=False
    )
    await worker.publish(30)
    assert await worker.all(await worker.collect(9), SettleVerb.ACK) == ["acked"] * 9
    held = await worker.collect(8, lease_ms=60_000)
    assert set(await worker.all(held, SettleVerb.EXTEND, lease_ms=100)) == {"extended"}

    async def limited() -> bool:
        return worker.metric("ackd_lease_expiries_total") == 8

    await wait_until_async(limited, "the leases to run out")
    assert worker.metric("ackd_circuit_breaker_open") == 0, "8 of 17 are less than a half"
    await worker.all(await worker.collect(1), SettleVerb.DEAD)
    assert (await worker.receive(wait_ms=0)).limited_by == "circuit-breaker"
    await worker.runtime.configure(NAME, {"circuit_breaker_share": 0})
    assert len(await worker.collect(20)) == 20


# --- memory


async def test_i8_a_full_window_sends_its_oldest_back_and_goes_on(shop: Shop) -> None:
    """Nothing is finished and nothing expires; only the memory's bound makes room."""
    worker = await shop.start(
        window_bytes_max=1024 * 1024, lease_ms=500, stuck_min_age_ms=500, stuck_after_ms=600_000
    )
    await worker.publish(40, size=100_000)
    held = await worker.collect(40, lease_ms=60_000, wait_ms=20_000)
    assert [each.record.offset for each in held] == list(range(40))

    async def sent_back() -> bool:
        return worker.metric("ackd_retry_topic_moves_total", reason="bytes") >= 1

    await wait_until_async(sent_back, "what made room is counted")
    assert worker.metric("ackd_window_warnings_total") >= 1
    assert set(await worker.all(held, SettleVerb.ACK)) == {"acked"}
    assert (await worker.receive(wait_ms=500)).messages == []


async def test_i8_what_is_left_of_a_full_window_gives_way_when_it_is_old_enough(shop: Shop) -> None:
    """The first ten leave and the next ten are too young: as much is left as halts fetching."""
    worker = await shop.start(
        window_bytes_max=1024 * 1024, lease_ms=500, stuck_min_age_ms=500, stuck_after_ms=600_000
    )
    await worker.publish(10, size=100_000)
    held = await worker.collect(10, lease_ms=60_000)
    await asyncio.sleep(1.6)  # they are as old as they have to be
    await worker.publish(20, size=100_000)
    held += await worker.collect(20, lease_ms=60_000, wait_ms=15_000)
    assert set(await worker.all(held, SettleVerb.ACK)) == {"acked"}


# --- streams and connections


async def test_a_copy_under_lease_counts_as_unsettled_until_it_is_settled(shop: Shop) -> None:
    """It is delivered under its origin's name, but its lease is in the retry topic's partition."""
    worker = await shop.start(**SOON)
    await worker.publish(2)
    stuck, other = await worker.collect(2, lease_ms=60_000)
    await worker.settle(other, SettleVerb.ACK)
    await worker.settle(stuck, SettleVerb.EXTEND, lease_ms=500)
    copy = await worker.one(lease_ms=60_000)
    assert copy.id == stuck.id
    unsettled = worker.runtime.unsettled(NAME)
    unsettled.add([copy])
    assert (unsettled.count(), unsettled.leases()) == (1, [copy.lease])
    await worker.settle(copy, SettleVerb.ACK)
    assert unsettled.count() == 0
    unsettled.close()


async def test_what_is_said_of_a_moved_message_goes_with_its_dead_letter(shop: Shop) -> None:
    """Under the lease of the original, before its copy is known here and after; then its own."""
    worker = await shop.start(**SOON)
    await worker.publish(3)
    early, killed, failed = await worker.collect(3, lease_ms=60_000)
    claims = worker.subscription.claims
    hold, seen = claims._hold, []

    def blind(ask: _CopyClaim, result: OpResult) -> None:
        if ask.retry_copy.origin.offset == 0:
            seen.append(ask)  # as if its copy was still on its way
        else:
            hold(ask, result)

    claims._hold = blind  # type: ignore[method-assign]

    async def copies() -> bool:
        return bool(seen) and sum(map(len, claims.held.values())) == 2

    await wait_until_async(copies, "the copies of all")
    await worker.settle(early, SettleVerb.DEAD, reason="said early")
    claims.claim(seen[0].partition, seen[0].offset)
    await worker.settle(killed, SettleVerb.DEAD, reason="bad order")
    await worker.settle(failed, SettleVerb.RETRY, delay_ms=1, reason="no disk")
    again = await worker.one()
    assert (again.id, again.attempt) == (failed.id, 2)
    await worker.settle(again, SettleVerb.DEAD, reason="no shop")
    letters = {each.message: each for each in await worker.dead(3)}
    said = {k: (v.reason, v.first_error, v.last_error) for k, v in letters.items()}
    assert said == {
        early.id: ("said early", "said early", "said early"),
        killed.id: ("bad order", "bad order", "bad order"),
        failed.id: ("no shop", "no disk", "no shop"),
    }
