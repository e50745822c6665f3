"""What sidecars share beside their records: the live value and the tokens of a rate."""

import asyncio
import time
from uuid import uuid4

import pytest

from ackd.ports import Store
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


async def test_the_live_value_is_set_by_who_knows_the_last_one(store: Store) -> None:
    name = f"live-{uuid4()}"
    assert (await store.heartbeat(name, "a", 1, (), "")).live == b""
    assert await store.set_live(name, b"", b"1") == b"1"
    assert await store.set_live(name, b"", b"2") == b"1"
    assert await store.set_live(name, b"", b"1") == b"1", "a repeat sees its own value"
    assert await store.set_live(name, b"1", b"\x00 {2}") == b"\x00 {2}"
    members = await store.heartbeat(name, "a", 1, (), "note")
    assert (members.live, [each.name for each in members.members]) == (b"\x00 {2}", ["a"])
    assert (await store.heartbeat(f"{name}-other", "a", 1, (), "")).live == b""


async def test_tokens_are_never_more_than_the_burst_and_the_time(store: Store) -> None:
    name, rate, burst = f"rate-{uuid4()}", 200.0, 20
    begin_s = time.monotonic()
    first = await store.take(name, 15, rate, burst)
    assert first == (15, 0)
    taken, waits = first.granted, 0
    while taken < 100:
        # Two at a time, as two sidecars would.
        for answer in await asyncio.gather(*(store.take(name, 20, rate, burst) for _ in range(2))):
            taken += answer.granted
            if not answer.granted:
                waits += 1
                assert 1 <= answer.wait_ms <= 6
                await asyncio.sleep(answer.wait_ms / 1000)
        assert taken <= burst + rate * (time.monotonic() - begin_s) + 1
    assert waits


async def test_a_bucket_that_was_emptied_fills_up_again(store: Store) -> None:
    name = f"rate-{uuid4()}"
    assert (await store.take(name, 100, 1000.0, 50)).granted == 50

    async def full() -> bool:
        return (await store.take(name, 50, 1000.0, 50)).granted >= 40

    await wait_until_async(full, "tokens to come back", interval_s=0.05)
