"""Under which place a message is known that its broker brings under several (I2, R32)."""

from uuid import uuid4

import pytest

from ackd.ports import AssignedPlace, Store
from ackd.store.memory import MemoryStore
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

TOPIC = bytes(range(16))
LONG_MS = 3_600_000
NEW = AssignedPlace(7, 7)


async def test_the_first_place_counts_whatever_comes_later(store: Store) -> None:
    name, places = f"places-{uuid4()}", store.places
    first = [(b"a", AssignedPlace(0, 5)), (b"b", AssignedPlace(3, (1 << 53) - 1))]
    assert await places.assign(name, TOPIC, LONG_MS, first) == [AssignedPlace(0, 5), first[1][1]]
    again = [
        (b"b", AssignedPlace(9, 9)),
        (b"c", AssignedPlace(9, 9)),
        (b"a", AssignedPlace(16384, 0)),
    ]
    found = await places.assign(name, TOPIC, LONG_MS, again)
    assert found == [first[1][1], AssignedPlace(9, 9), AssignedPlace(0, 5)]
    assert await places.assign(f"{name}-2", TOPIC, LONG_MS, again[:1]) == [AssignedPlace(9, 9)]
    assert await places.assign(name, bytes(16), LONG_MS, again[:1]) == [AssignedPlace(9, 9)]
    assert await places.assign(name, TOPIC, LONG_MS, []) == []


async def test_i8_it_is_forgotten_when_it_was_not_asked_for_so_long(store: Store) -> None:
    name, keep_ms = f"places-{uuid4()}", 100
    noted = [(b"%d" % number, AssignedPlace(0, number)) for number in range(500)]
    await store.places.assign(name, TOPIC, keep_ms, noted)
    left = iter(noted)

    async def forgotten() -> bool:
        message, _ = next(left)  # one that was asked for is known for longer
        return await store.places.assign(name, TOPIC, keep_ms, [(message, NEW)]) == [NEW]

    await wait_until_async(forgotten, "a place to be forgotten", interval_s=0.05)


async def test_it_is_kept_while_it_is_asked_for() -> None:
    now_us, name, keep_ms = [0], "places", 1_000
    places = MemoryStore(now_us=lambda: now_us[0]).places
    await places.assign(name, TOPIC, keep_ms, [(b"held", AssignedPlace(0, 1))])
    for _ in range(10):
        now_us[0] += 999_000
        assert await places.assign(name, TOPIC, keep_ms, [(b"held", NEW)]) == [AssignedPlace(0, 1)]
    now_us[0] += 2_000_000
    assert await places.assign(name, TOPIC, keep_ms, [(b"held", NEW)]) == [NEW]
