"""The numbers of a topic's brokers: the same for all sidecars, and never another one's (R1)."""

import random
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from ackd.core.log_generations import GENERATION
from ackd.core.sources import (
    BLOCK,
    BLOCKS,
    COPIES,
    SEEN_EACH_MS,
    SourceNumbers,
    SourcesExhaustedError,
    block_of,
    number_of,
)
from ackd.errors import StoreError
from ackd.ports import AssignedPlace, KnownSource, Store, StoredAt
from ackd.store.keys import Keys
from ackd.store.memory import MemoryStore
from ackd.store.places import RedisPlaces
from ackd.store.scripts import PLACES, SOURCES, Script
from ackd.store.survey import Survey
from tests.contract.store.test_assigned_places import TOPIC, done
from tests.contract.store.test_differential import with_clock

SCRIPTS = ((PLACES, ("ids", "places")), (SOURCES, ("sources",)))
pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


async def blocks(store: Store, name: str, **brokers: int) -> dict[str, tuple[int, ...]]:
    """What all known ones have."""
    known = await store.places.sources(name, TOPIC, [*brokers.items()])
    return {each.broker: each.blocks for each in known}


async def log(store: Store, name: str, number: int) -> None:
    """Something is known of this queue."""
    at = StoredAt(b"%d" % number, AssignedPlace(number, 3), 1_000)
    await store.places.assign(name, TOPIC, 60_000, [at])


async def test_r1_a_broker_keeps_its_numbers_whoever_comes_and_goes(store: Store) -> None:
    name = f"sources-{uuid4()}"
    assert await blocks(store, name, a=3) == {"a": (0,)}
    assert await blocks(store, name, b=17, a=3) == {"a": (0,), "b": (1, 2)}
    assert await blocks(store, name, b=17) == {"a": (0,), "b": (1, 2)}
    assert await blocks(store, name, a=40, c=1) == {"a": (0, 3, 4), "b": (1, 2), "c": (5,)}
    assert await blocks(store, name) == {"a": (0, 3, 4), "b": (1, 2), "c": (5,)}
    assert await blocks(store, f"{name}-2", c=1) == {"c": (0,)}
    [known] = [each for each in await store.places.sources(name, TOPIC, []) if each.broker == "b"]
    assert (known.queues, known.silent_ms < 60_000) == (17, True)


async def test_r1_the_only_broker_of_a_topic_goes_on_with_the_records_that_there_are(
    store: Store,
) -> None:
    name = f"sources-{uuid4()}"
    await log(store, name, 2)
    await log(store, name, BLOCK + 1)
    assert await blocks(store, name, a=20) == {"a": (0, 1)}


async def test_i1_no_broker_gets_the_records_of_an_unknown_one(store: Store) -> None:
    """Nobody knows whose they are when two come at once: what is finished says nothing of them."""
    name = f"sources-{uuid4()}"
    await log(store, name, 2)
    await log(store, name, COPIES + 2 * BLOCK)
    assert await blocks(store, name, a=2, b=2) == {"a": (1,), "b": (3,)}


async def test_i8_more_queues_than_numbers_are_an_error(store: Store) -> None:
    name = f"sources-{uuid4()}"
    assert (await blocks(store, name, a=COPIES))["a"] == tuple(range(BLOCKS))
    with pytest.raises(StoreError, match="more than 1024 blocks"):
        await blocks(store, name, b=1)


async def test_r14_an_operator_removes_them_with_the_records(store: Store) -> None:
    if isinstance(store, MemoryStore):
        return
    name = f"sources-{uuid4()}"
    await blocks(store, name, a=1)
    await Survey(store).forget_logs(name, TOPIC)
    assert await blocks(store, name, b=1) == {"b": (0,)}


def test_the_script_decides_like_the_core(client: Any) -> None:
    """Call by call, with a clock that the test sets."""
    texts = {each: client.register_script(with_clock(*parts)) for each, parts in SCRIPTS}

    async def run(key: str, asked: Script, words: Any) -> Any:
        return texts[asked](keys=[key], args=words)

    for seed in range(30):
        client.flushall()
        rng, now_us = random.Random(seed), [1_800_000_000_000_000]
        memory = MemoryStore(now_us=partial(now_us.__getitem__, 0)).places
        redis = RedisPlaces(Keys("test"), run)
        for step in range(40):
            now_us[0] += rng.choice([0, 1, SEEN_EACH_MS // 3, 2 * SEEN_EACH_MS]) * 1_000
            client.set("test:clock", now_us[0])
            if rng.random() < 0.2:
                number = rng.randrange(8 * BLOCK) + rng.choice([0, COPIES])
                at = [StoredAt(b"%d" % step, AssignedPlace(number, 1), 1_000)]
                done(memory.assign("s", TOPIC, 60_000, at))
                done(redis.assign("s", TOPIC, 60_000, at))
                continue
            names = rng.sample("abcd", rng.randrange(4))
            found = [(name, rng.randrange(1, 3 * BLOCK)) for name in names]
            want = done(memory.sources("s", TOPIC, found))
            got = done(redis.sources("s", TOPIC, found))
            assert sorted(got) == sorted(want), (seed, step)


def test_r1_a_number_belongs_to_one_queue_of_one_broker() -> None:
    rng, numbers = random.Random(5), SourceNumbers()
    whose: dict[int, tuple[str, int]] = {}
    for _ in range(200):
        broker, queues = rng.choice("abcdef"), rng.randrange(1, 100)
        numbers.seen([(broker, queues)], (), 0)
        for name, each in numbers.known.items():
            for queue in range(each.queues):
                number = number_of(each.blocks, queue)
                assert whose.setdefault(number, (name, queue)) == (name, queue)
                for of in (number, COPIES + number, 5 * GENERATION + number):
                    assert block_of(of, GENERATION) in each.blocks


def test_too_many_are_refused_in_memory_too() -> None:
    with pytest.raises(SourcesExhaustedError):
        SourceNumbers().seen([("a", COPIES + 1)], (), 0)


def test_who_is_not_found_is_silent() -> None:
    now_us = 0
    places = MemoryStore(now_us=lambda: now_us).places
    done(places.sources("s", TOPIC, [("a", 1), ("b", 1)]))
    now_us = 60_000_000
    known: list[KnownSource] = done(places.sources("s", TOPIC, [("a", 1)]))
    assert {each.broker: each.silent_ms for each in known} == {"a": 0, "b": 60_000}
