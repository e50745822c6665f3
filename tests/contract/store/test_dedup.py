"""Acked business keys: what is a repeat and what never is (R18, I1, I8)."""

from uuid import uuid4

import pytest

from ackd.core.dedup_window import Ask, DedupEntry
from ackd.ports import Store
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

WINDOW_MS = 60_000
ONE, TWO = bytes(range(20)), bytes(20)


def key(text: str) -> bytes:
    """A key of the right length."""
    return text.encode().ljust(16, b"\x00")


def origin(number: int) -> bytes:
    """The digest of a message."""
    return number.to_bytes(8, "big")


async def now_ms(store: Store) -> int:
    """The store's clock."""
    return (await store.heartbeat(f"clock-{uuid4()}", "a", 1, (), "")).now_ms


async def test_only_another_message_of_the_window_is_a_repeat(store: Store) -> None:
    seen, name, at_ms = store.dedup_keys, f"seen-{uuid4()}", await now_ms(store)
    entries = [
        DedupEntry(key("a"), origin(1), at_ms),
        DedupEntry(key("b"), origin(2), at_ms - WINDOW_MS),
    ]
    assert await seen.remember(name, WINDOW_MS, 100, entries) == 2
    asks = [
        Ask(key("a"), origin(1), 0),  # itself
        Ask(key("a"), origin(9), 0),
        Ask(key("a"), origin(9), 1),
        Ask(key("b"), origin(9), 0),  # too old
        Ask(key("c"), origin(9), 0),
    ]
    found = await seen.seen(name, WINDOW_MS, [(ONE, 0), (TWO, 0)], asks)
    assert found == [False, True, True, False, False]
    assert await seen.seen(f"{name}-other", WINDOW_MS, [(ONE, 0)], asks[1:2]) == [False]


async def test_after_a_reset_nothing_of_before_counts(store: Store) -> None:
    seen, name, at_ms = store.dedup_keys, f"seen-{uuid4()}", await now_ms(store)
    ask = [Ask(key("a"), origin(9), 0)]
    assert await seen.seen(name, WINDOW_MS, [(ONE, 3)], ask) == [False]
    # Acked by a clock that runs ahead, all before the reset.
    await seen.remember(name, WINDOW_MS, 100, [DedupEntry(key("a"), origin(1), at_ms + 5_000)])
    assert await seen.seen(name, WINDOW_MS, [(ONE, 3)], ask) == [True]
    assert await seen.seen(name, WINDOW_MS, [(ONE, 4)], ask) == [False]
    assert await seen.seen(name, WINDOW_MS, [(TWO, 0)], ask) == [True], "no reset of that one"
    await seen.remember(name, WINDOW_MS, 100, [DedupEntry(key("a"), origin(2), at_ms + 5_001)])
    assert await seen.seen(name, WINDOW_MS, [(ONE, 4)], ask) == [True]
    assert await seen.seen(name, WINDOW_MS, [(ONE, 2)], ask) == [False], "a rollback of the record"


async def test_entries_have_a_bound_and_the_oldest_make_room(store: Store) -> None:
    seen, name, at_ms = store.dedup_keys, f"seen-{uuid4()}", await now_ms(store)
    # Each eighth of so short a window is a generation of its own.
    window_ms = 4_000
    first = [DedupEntry(key(f"first-{n}"), origin(n), at_ms) for n in range(6)]
    assert await seen.remember(name, window_ms, 10, first) == 6
    many = [DedupEntry(key(f"many-{n}"), origin(n), at_ms) for n in range(9)]

    async def room() -> bool:
        return await seen.remember(name, window_ms, 10, many) == 9

    await wait_until_async(room, "the next generation", interval_s=0.1)
    asks = [Ask(key("first-1"), origin(99), 0), Ask(key("many-1"), origin(99), 0)]
    assert await seen.seen(name, window_ms, [(ONE, 0)], asks) == [False, True]
    assert await seen.remember(name, window_ms, 5, many) in (0, 5), "never more than the bound"
