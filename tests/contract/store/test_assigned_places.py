"""Under which place a message is known that its broker brings under several (I2, R32), and that no
other message has, though its broker uses an offset again (I1, R1).
"""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Sequence
from itertools import starmap
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from msgspec import msgpack
from redis.exceptions import ResponseError

from ackd.core.known_ids import STEP_MS
from ackd.core.log_generations import (
    CUTS_MAX,
    GENERATION,
    GENERATIONS_MAX,
    SAMPLES_MAX,
    LogGenerations,
    Sample,
)
from ackd.core.sources import COPIES
from ackd.errors import StoreDataError, StoreError
from ackd.ports import AssignedPlace, LogCut, Placed, Store, StoredAt
from ackd.store.keys import Keys
from ackd.store.memory import MemoryStore
from ackd.store.places import RedisPlaces
from ackd.store.scripts import PLACES, Script
from ackd.store.survey import Survey
from tests.contract.store.test_differential import with_clock
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

TOPIC = bytes(range(16))
LONG_MS = 3_600_000
NEW = AssignedPlace(7, 7)
T = TypeVar("T")


def at(message: bytes, partition: int, offset: int, stored_ms: int = 0) -> StoredAt:
    return StoredAt(message, AssignedPlace(partition, offset), stored_ms)


async def placed(store: Store, name: str, *messages: StoredAt) -> list[AssignedPlace]:
    """Their places; no log was cut."""
    found = await store.places.assign(name, TOPIC, LONG_MS, messages)
    assert found.cuts == []
    return found.places


async def test_the_first_place_counts_whatever_comes_later(store: Store) -> None:
    name = f"places-{uuid4()}"
    first = [at(b"a", 0, 5), at(b"b", 3, (1 << 53) - 1)]
    assert await placed(store, name, *first) == [each.place for each in first]
    again = [at(b"b", 9, 9), at(b"c", 9, 9), at(b"a", 16384, 0)]
    places = [first[1].place, AssignedPlace(9, 9), AssignedPlace(0, 5)]
    assert await placed(store, name, *again) == places
    assert await placed(store, f"{name}-2", again[0]) == [AssignedPlace(9, 9)]
    other = await store.places.assign(name, bytes(16), LONG_MS, again[:1])
    assert other.places == [AssignedPlace(9, 9)]
    assert await store.places.assign(name, TOPIC, LONG_MS, []) == Placed([], [])


async def test_i2_one_that_came_first_as_a_copy_keeps_that_place_where_it_is_stored(
    store: Store,
) -> None:
    """Its first delivery was lost, and after the copy's ack the broker goes back in a crash. Others
    beside it have their own places, and so has all once the id is forgotten.
    """
    name = f"places-{uuid4()}"
    known = [at(b"a", 0, 5, 1_000), at(b"b", 17, 5, 1_000)]
    assert await placed(store, name, *known) == [each.place for each in known]
    copies = [at(b"early", COPIES, 0, 3_000), at(b"late", COPIES + 16, 1, 3_000)]
    assert await placed(store, name, *copies) == [each.place for each in copies]
    own = [at(b"early", 0, 4, 900), at(b"late", 0, 6, 1_100), at(b"c", 0, 7, 1_200)]
    assert await placed(store, name, *own) == [*(each.place for each in copies), own[2].place]
    assert await placed(store, name, *own[:2]) == [each.place for each in copies]


async def test_i8_it_is_forgotten_when_it_was_not_asked_for_so_long(store: Store) -> None:
    name, keep_ms = f"places-{uuid4()}", 100
    noted = [at(b"%d" % number, 0, number) for number in range(500)]
    await store.places.assign(name, TOPIC, keep_ms, noted)
    left, copy = iter(noted), AssignedPlace(COPIES, 7)

    async def forgotten() -> bool:
        message = next(left).id  # one that was asked for is known for longer
        found = await store.places.assign(name, TOPIC, keep_ms, [StoredAt(message, copy, 0)])
        return found.places == [copy]

    await wait_until_async(forgotten, "a place to be forgotten", interval_s=0.05)


async def test_it_is_kept_while_it_is_asked_for() -> None:
    """And for so long while others come; no time counts in which none does."""
    now_us, name, keep_ms = [0], "places", 12_000
    places = MemoryStore(now_us=lambda: now_us[0]).places
    copy = AssignedPlace(COPIES + 7, 7)
    asked, held = StoredAt(b"asked", copy, 0), AssignedPlace(0, 1)
    await places.remember(name, TOPIC, keep_ms, [(b"asked", held), (b"held", held)])
    for _ in range(10):
        now_us[0] += STEP_MS * 11_000
        assert (await places.assign(name, TOPIC, keep_ms, [asked])).places == [held]
        await places.remember(name, TOPIC, keep_ms, [(b"held", NEW)])
    assert (await places.assign(name, TOPIC, keep_ms, [StoredAt(b"held", copy, 0)])).places == [
        held
    ]

    async def others(count: int) -> None:
        for number in range(count):
            now_us[0] += STEP_MS * 1_000
            other = StoredAt(b"other %d" % number, AssignedPlace(3, number), 0)
            await places.assign(name, TOPIC, keep_ms, [other])

    await others(keep_ms // STEP_MS - 1)
    now_us[0] += 1_000_000 * keep_ms
    assert (await places.assign(name, TOPIC, keep_ms, [asked])).places == [held]
    await others(2 * keep_ms // STEP_MS)
    assert (await places.assign(name, TOPIC, keep_ms, [asked])).places == [copy]


async def test_i2_who_is_looked_up_is_known_where_it_first_came(store: Store) -> None:
    """One that never came is known from then on, by whatever name it comes later."""
    name, copy = f"places-{uuid4()}", AssignedPlace(COPIES, 4)
    first = [at(b"old", 0, 5), StoredAt(b"copied", copy, 7)]
    await placed(store, name, *first)
    asked = [(each, AssignedPlace(0, at)) for at, each in enumerate((b"old", b"copied", b"new"))]
    for _ in range(2):
        found = await store.places.look_up(name, TOPIC, LONG_MS, 0, asked)
        assert found.places == [AssignedPlace(0, 5), copy, AssignedPlace(0, 2)]
    assert await placed(store, name, StoredAt(b"new", copy, 8)) == [AssignedPlace(0, 2)]
    assert (await store.places.look_up(name, TOPIC, LONG_MS, 0, ())).places == []


async def test_the_time_of_ids_goes_on_with_each_block_apart_and_only_while_messages_come() -> None:
    now_us, name = [0], "places"
    places = MemoryStore(now_us=lambda: now_us[0]).places

    async def times() -> list[int]:
        return [
            (await places.look_up(name, TOPIC, LONG_MS, clock, ())).active_ms for clock in (3, 16)
        ]

    await places.assign(name, TOPIC, LONG_MS, [at(b"first", 0, 0)])
    began = await times()
    for number in range(5):
        now_us[0] += STEP_MS * 1_000
        await places.assign(name, TOPIC, LONG_MS, [at(b"%d" % number, 0, number)])
    assert await times() == [began[0] + 5 * STEP_MS, began[1]]
    now_us[0] += 1_000_000_000
    assert await times() == [began[0] + 5 * STEP_MS, began[1]]


async def test_a_server_tells_the_time_of_ids(store: Store) -> None:
    name = f"places-{uuid4()}"
    await store.places.assign(name, TOPIC, LONG_MS, [at(b"first", 0, 0)])
    before = (await store.places.look_up(name, TOPIC, LONG_MS, 5, ())).active_ms

    async def goes_on() -> bool:
        await store.places.assign(name, TOPIC, LONG_MS, [at(b"more", 1, 0)])
        found = await store.places.look_up(name, TOPIC, LONG_MS, 5, [(b"x", NEW)])
        return found.active_ms > before and found.places == [NEW]

    await wait_until_async(goes_on, "the time to go on", interval_s=0.05)
    assert (await store.places.look_up(name, TOPIC, LONG_MS, 16, ())).active_ms == 0


# --- offsets that are used again --------------------------------------------------------------


async def test_i1_a_message_at_a_used_offset_gets_a_place_of_its_own(store: Store) -> None:
    """R1: the log lost its tail from offset 5 on. Who is known keeps the place."""
    name = f"places-{uuid4()}"
    old = [at(b"old-%d" % n, 2, n, 1_700_000_000_000 + n) for n in range(10)]
    assert await placed(store, name, *old) == [each.place for each in old]
    new = [at(b"new-%d" % n, 2, n, 1_700_000_060_000 + n) for n in range(5, 15)]
    again = GENERATION + 2
    found = await store.places.assign(name, TOPIC, LONG_MS, [*new, *old])
    assert found.cuts == [LogCut(2, 5, 1)]
    wanted = [*(AssignedPlace(again, n) for n in range(5, 15)), *(each.place for each in old)]
    assert found.places == wanted
    assert await placed(store, name, *new) == wanted[:10]
    # Other logs know nothing of it, and what is of before the cut is.
    assert await placed(store, name, at(b"x", 3, 0, 1_700_000_060_000)) == [AssignedPlace(3, 0)]
    assert await placed(store, name, at(b"y", 2, 4, 1_700_000_000_004)) == [AssignedPlace(2, 4)]


async def test_i1_what_is_held_is_remembered_under_the_place_that_it_has(store: Store) -> None:
    name, held = f"places-{uuid4()}", AssignedPlace(3 * GENERATION + 1, 8)
    await store.places.remember(name, TOPIC, LONG_MS, [(b"held", held)])
    assert await placed(store, name, at(b"held", 1, 8, 1_700_000_000_000)) == [held]
    assert await placed(store, name, at(b"next", 1, 7, 1_700_000_000_001)) == [AssignedPlace(1, 7)]


async def test_i1_the_generations_of_a_log_are_never_forgotten(store: Store) -> None:
    """A subscription may be idle for longer than ids are known, and its log be cut meanwhile."""
    name, keep_ms, gone = f"places-{uuid4()}", 50, iter(range(1_000))
    await store.places.assign(name, TOPIC, keep_ms, [at(b"old", 0, 3, 1_700_000_000_000)])

    async def forgotten() -> bool:
        for _ in range(4):
            other = at(b"other-%d" % next(gone), 5, 0, 0)
            await store.places.assign(name, TOPIC, keep_ms, [other])
            await asyncio.sleep(keep_ms / 1000)
        found = await store.places.assign(name, TOPIC, keep_ms, [at(b"old", COPIES, 9, 0)])
        return found.places == [AssignedPlace(COPIES, 9)]

    await wait_until_async(forgotten, "the id to be forgotten", interval_s=0.3)
    found = await store.places.assign(name, TOPIC, keep_ms, [at(b"new", 0, 3, 1_700_000_000_001)])
    assert found == Placed([AssignedPlace(GENERATION, 3)], [LogCut(0, 3, 1)])


async def test_i8_too_many_generations_are_an_error_and_no_wrong_place(store: Store) -> None:
    name = f"places-{uuid4()}"
    with pytest.raises(StoreDataError, match="below 32768"):
        await store.places.assign(name, TOPIC, LONG_MS, [at(b"a", GENERATION, 0, 1)])
    await store.places.assign(name, TOPIC, LONG_MS, [at(b"a", 0, 0, 1_000)])
    if not isinstance(store, MemoryStore):
        return  # nobody cuts a log 65,535 times on a server; the next test compares the scripts
    log = store.data.places[name, TOPIC].logs[0]
    log.merged = GENERATIONS_MAX
    with pytest.raises(StoreError, match="cut 65535 times"):
        await store.places.assign(name, TOPIC, LONG_MS, [at(b"b", 0, 0, 2_000)])


async def test_r14_an_operator_removes_them_with_the_records(store: Store) -> None:
    if isinstance(store, MemoryStore):
        return
    survey, name = Survey(store), f"places-{uuid4()}"
    await placed(store, name, at(b"a", 0, 3, 1_000))
    found = await store.places.assign(name, TOPIC, LONG_MS, [at(b"b", 0, 3, 2_000)])
    assert found.cuts
    await survey.forget_logs(name, TOPIC)
    assert await placed(store, name, at(b"c", 0, 3, 3_000)) == [AssignedPlace(0, 3)]


# --- the script and the core ------------------------------------------------------------------


def test_the_script_decides_like_the_core(client: Any) -> None:
    """Answers, and what is kept of each log, call by call; a clock that the test sets."""
    seen: Counter[str] = Counter()
    for seed in range(40):
        client.flushall()
        Both(client, seed).run(120, seen)
    assert min(seen[word] for word in ("cuts", "merged", "full", "old", "copied")) > CUTS_MAX, seen


def test_i8_the_script_refuses_too_many_generations(client: Any) -> None:
    client.flushall()
    both = Both(client, 0)
    client.set("test:clock", 1)
    state = b"".join(map(msgpack.encode, (GENERATIONS_MAX, [], [9], [1_000])))
    client.hset(both.logs, "5", state)
    with pytest.raises(ResponseError, match="partition 5 was cut too often"):
        done(both.redis.assign("s", TOPIC, 1_000, [at(b"last", 5, 1, 2_000)]))
    assert client.hget(both.logs, "5") == state


class Both:
    """The same calls on a server and in memory, chosen from a seed."""

    def __init__(self, client: Any, seed: int) -> None:
        self.client, self.seed = client, seed
        self._rng = random.Random(seed)
        self._now_us, self._now_ms = 1_800_000_000_000_000, 1_700_000_000_000
        self.memory = MemoryStore(now_us=lambda: self._now_us)
        text = with_clock("ids", "places")
        assert "Log." not in text
        assert "Ids." not in text
        script = client.register_script(text)

        async def run(key: str, asked: Script, words: Sequence[str | bytes | int]) -> Any:
            assert asked is PLACES
            return script(keys=[key], args=words)

        self.redis = RedisPlaces(Keys("test"), run)
        self.logs = Keys("test").log_generations("s", TOPIC)

    def run(self, steps: int, seen: Counter[str]) -> None:
        """So many calls."""
        rng, memory = self._rng, self.memory
        for step in range(steps):
            self._now_us += rng.choice([0, 100_000, 900_000, 2_500_000])
            self.client.set("test:clock", self._now_us)
            back_ms = -2_000 * (self.seed % 2)
            self._now_ms = max(self._now_ms + rng.choice([0, 1, 50, 50, 3_000, back_ms]), 1)
            batch = self._batch(step)
            if rng.random() < 0.1:
                held = [(each.id, each.place) for each in batch]
                done(self.redis.remember("s", TOPIC, 1_000, held))
                done(memory.places.remember("s", TOPIC, 1_000, held))
                continue
            want = done(memory.places.assign("s", TOPIC, 1_000, batch))
            assert done(self.redis.assign("s", TOPIC, 1_000, batch)) == want, (self.seed, step)
            logs = {n: log for n, log in memory.data.places["s", TOPIC].logs.items() if log.samples}
            stored = self.client.hgetall(self.logs)
            assert {int(n): _kept(each) for n, each in stored.items()} == logs, (self.seed, step)
            seen["cuts"] += len(want.cuts)
            seen["merged"] += any(log.merged for log in logs.values())
            seen["full"] += any(len(log.samples) == SAMPLES_MAX for log in logs.values())
            seen["copied"] += any(
                place.partition % GENERATION >= COPIES > each.place.partition
                for each, place in zip(batch, want.places, strict=True)
            )
            seen["old"] += any(place.partition >= GENERATION for place in want.places)

    def _batch(self, step: int) -> list[StoredAt]:
        rng = self._rng
        wild = self.seed % 2 or rng.random() < 0.02  # a calm log grows long
        first = step * rng.choice([1, 8, 8, 8, 7]) if wild else step * 8
        return [
            at(
                b"%d" % rng.randrange(1 << rng.choice([4, 20])),
                rng.choice([0, 0, 0, 16_384, GENERATION - 1]),
                rng.choice([first, rng.randrange(1_000), 1 << 52]) + number if wild else first,
                rng.choice([0, *[self._now_ms + number] * 8]),
            )
            for number in range(rng.randrange(9))
        ]


def done(call: Coroutine[Any, Any, T]) -> T:
    """The result of a call that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as result:
        found: T = result.value
        return found
    raise AssertionError("it waits")


def _kept(packed: bytes) -> LogGenerations:
    """What the script keeps of a log: four values, one behind the other."""
    merged, cuts, offsets, times = msgpack.decode(b"\x94" + packed)
    return LogGenerations(merged, [*cuts], [*starmap(Sample, zip(offsets, times, strict=True))])
