"""Heartbeats bring what has changed since the last one, and nothing is missed (R5)."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest
import redis

from ackd.ports import READY_MAX, Member, ReadyReport, Store
from ackd.store import roster
from ackd.store.redis import RedisStore
from ackd.store.survey import Survey
from tests.contract.store.owner import fresh_key
from tests.contract.store.servers import connect, started
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary
from tests.support.wait import wait_until_async

NAMES = ("a", "b", "c")
LETTERS = "ehtcg"
_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Valkey whose counters nobody else moves."""
    with RedisServer(RedisOptions(binary(Flavour.VALKEY), fsync=None)) as found:
        yield found


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with redis.Redis(host="127.0.0.1", port=server.port, protocol=2) as found:
        yield found


@pytest.fixture
async def stores(server: RedisServer) -> AsyncIterator[list[Store]]:
    """A process each for three sidecars."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(started(connect(server.port))) for _ in NAMES]


def seen(members: Sequence[Member]) -> list[tuple[str, int, tuple[str, ...], str]]:
    return [(each.name, each.boot, each.owned, each.note) for each in members]


async def test_a_change_is_told_to_all_and_once(store: Store) -> None:
    name = fresh_key().subscription
    boots = {each: await store.register(name, each) for each in NAMES}
    for each in NAMES * 3:
        await store.heartbeat(name, each, boots[each], [f"of-{each}"], "")
    before = (await store.heartbeat(name, "a", boots["a"], ["of-a"], "")).members
    assert [each.owned for each in before] == [("of-a",), ("of-b",), ("of-c",)]
    await store.heartbeat(name, "b", boots["b"], ["new"], "note")
    for each in NAMES:
        for _ in range(2):
            told = (await store.heartbeat(name, each, boots[each], [f"of-{each}"], "")).members
            if each != "a":
                continue
            assert seen(told)[1:] == [
                ("b", boots["b"], ("new",), "note"),
                ("c", boots["c"], ("of-c",), ""),
            ]
    await store.forget(name, "c", boots["c"])
    told = (await store.heartbeat(name, "a", boots["a"], ["of-a"], "")).members
    assert [each.name for each in told] == ["a", "b"]
    await store.heartbeat(name, "c", boots["c"], ["again"], "")
    told = (await store.heartbeat(name, "a", boots["a"], ["of-a"], "")).members
    assert seen(told)[2] == ("c", boots["c"], ("again",), "")


async def test_r5_who_does_not_beat_becomes_silent_for_all(store: Store) -> None:
    name = fresh_key().subscription
    boots = {each: await store.register(name, each) for each in NAMES}
    for each in NAMES:
        await store.heartbeat(name, each, boots[each], ["one"], "")

    async def silent() -> list[int]:
        await store.heartbeat(name, "b", boots["b"], ["one"], "")
        found = (await store.heartbeat(name, "a", boots["a"], ["one"], "")).members
        return [each.silent_ms for each in found]

    async def long() -> bool:
        return (await silent())[2] >= 1_500

    await wait_until_async(long, "a silent sidecar is told of")
    assert max((await silent())[:2]) < 1_000
    await store.heartbeat(name, "c", boots["c"], ["one"], "")
    assert max(await silent()) < 1_000


async def quiet(client: Any, store: Store, members: int) -> int:
    """Bytes of the answers to ten heartbeats among so many sidecars."""
    name = f"quiet-{next(_numbers)}"
    for number in range(members):
        each = f"sidecar-{number:04}"
        await store.heartbeat(name, each, await store.register(name, each), ["record"] * 20, "note")
    boot = await store.register(name, "me")
    for _ in range(3):
        await store.heartbeat(name, "me", boot, ["mine"], "")
    for key in client.scan_iter(f"*{name}*:t"):  # nobody becomes silent while this is measured
        client.zadd(key, dict.fromkeys(client.zrange(key, 0, -1), 2**52))
    before = int(client.info("stats")["total_net_output_bytes"])
    for _ in range(10):
        told = await store.heartbeat(name, "me", boot, ["mine"], "")
        assert len(told.members) == members + 1
    after = int(client.info("stats")["total_net_output_bytes"])
    answer = len(str(client.info("stats")))  # the first of the two answers counts, too
    return after - before - answer


async def test_a_quiet_heartbeat_costs_the_same_among_few_and_many(
    client: Any, stores: list[Store]
) -> None:
    few, many = [await quiet(client, stores[0], members) for members in (2, 200)]
    assert many < few + 1_000  # one member alone takes 200


async def test_heartbeats_of_one_moment_are_one_call(client: Any, stores: list[Store]) -> None:
    store, names = stores[0], [f"together-{next(_numbers)}" for _ in range(10)]
    boots = [await store.register(name, "a") for name in names]

    async def beat() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, boot in zip(names, boots, strict=True):
                tasks.create_task(store.heartbeat(name, "a", boot, ["record"], ""))

    for _ in range(3):
        await beat()
    client.config_resetstat()
    await beat()
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
    assert client.info("commandstats")["cmdstat_zadd"]["calls"] == 10


async def test_one_damaged_subscription_does_not_silence_the_others(
    client: Any, stores: list[Store]
) -> None:
    store = stores[0]
    assert isinstance(store, RedisStore)
    names = [f"damaged-{next(_numbers)}" for _ in range(3)]
    client.set(store.keys.members(names[1]), b"not a hash")
    answers = await asyncio.gather(
        *(store.heartbeat(name, "a", 1, ["record"], "") for name in names), return_exceptions=True
    )
    client.delete(store.keys.members(names[1]))
    assert [isinstance(each, Exception) for each in answers] == [False, True, False]


def others(name: str, members: Sequence[Member]) -> list[object]:
    """What is told of the others, and which boot of the sidecar itself was there."""
    return [row if row[0] != name else row[:2] for row in seen(members)]


class Server:
    """What can happen to the keys of a subscription's members."""

    def __init__(self, client: Any, store: RedisStore, name: str) -> None:
        self._client = client
        base = store.keys.members(name)[:-1]
        self._keys = [f"{base}{letter}" for letter in LETTERS]
        self._saved: list[bytes | None] = [None] * len(self._keys)

    def save(self) -> None:
        self._saved = [self._client.dump(key) for key in self._keys]

    def set_back(self) -> None:
        """All keys are as they were: a failover, or a restart with an old file."""
        self._client.delete(*self._keys)
        for key, saved in zip(self._keys, self._saved, strict=True):
            if saved is not None:
                self._client.restore(key, 0, saved)

    def lose(self, letters: str) -> None:
        """Keys are gone."""
        self._client.delete(*(k for k in self._keys if k[-1] in letters))


@pytest.mark.parametrize("seed", range(10))
async def test_what_a_sidecar_knows_is_what_the_store_has(
    client: Any, stores: list[Store], seed: int
) -> None:
    """Whatever changes, is set back or lost: each heartbeat tells what was there before it."""
    rng = random.Random(seed)
    first = stores[0]
    assert isinstance(first, RedisStore)
    name = f"random-{next(_numbers)}"
    server, survey = Server(client, first, name), Survey(first)
    boots = dict.fromkeys(NAMES, 1)
    owned = dict.fromkeys(NAMES, "0")
    for step in range(80):
        which = rng.randrange(len(NAMES))
        each, store = NAMES[which], stores[which]
        match rng.randrange(14):
            case 0:
                boots[each] = await store.register(name, each)
            case 1:
                await store.forget(name, each, boots[each])
            case 2:
                server.save()
            case 3:
                server.set_back()
            case 4:
                server.lose(LETTERS)
            case 5 | 6:
                owned[each] = str(step)
            case _:
                there = (await survey.members()).get(name, [])
                found = await store.heartbeat(name, each, boots[each], [owned[each]], "")
                assert others(each, found.members) == others(each, there), (seed, step)
                if not found.superseded:
                    written = {m.name: m for m in (await survey.members())[name]}[each]
                    assert (written.boot, written.owned) == (boots[each], (owned[each],))


async def test_a_change_that_the_store_has_lost_is_not_believed(
    client: Any, stores: list[Store]
) -> None:
    """A failover to older data: others know more of `b` than the store, until `b` beats."""
    first, name = stores[0], f"older-{next(_numbers)}"
    assert isinstance(first, RedisStore)
    server = Server(client, first, name)

    async def beat(which: int, owned: str) -> list[tuple[str, ...]]:
        found = await stores[which].heartbeat(name, NAMES[which], 1, [owned], "")
        return [each.owned for each in found.members]

    for which in (0, 1, 2, 0, 1, 2):
        await beat(which, "old")
    server.save()
    await beat(1, "new")
    assert (await beat(0, "old"))[1] == ("new",)
    server.set_back()
    await beat(2, "newer")
    assert await beat(0, "old") == [("old",), ("old",), ("newer",)]
    await beat(1, "new")
    assert await beat(0, "old") == [("old",), ("new",), ("newer",)]


async def test_more_are_gone_than_the_store_remembers(client: Any, stores: list[Store]) -> None:
    """Who has not heard of them reads everything."""
    one, two, name = stores[0], stores[1], f"gone-{next(_numbers)}"
    assert isinstance(one, RedisStore)
    for number in range(3):
        await two.heartbeat(name, f"first-{number}", 1, [], "")
    for _ in range(3):
        await one.heartbeat(name, "me", 1, [], "")
    assert len((await one.heartbeat(name, "me", 1, [], "")).members) == 4
    for number in range(3):
        await two.forget(name, f"first-{number}", 1)
    for number in range(1_001):
        await two.heartbeat(name, f"then-{number}", 1, [], "")
        await two.forget(name, f"then-{number}", 1)
    assert client.zcard(one.keys.members(name)[:-1] + "g") == 1_000
    assert [m.name for m in (await one.heartbeat(name, "me", 1, [], "")).members] == ["me"]


async def test_a_lost_time_of_a_beat_makes_nobody_immortal(
    client: Any, stores: list[Store]
) -> None:
    """R5: the key with the times is gone, and one of the sidecars beats no more."""
    one, name = stores[0], f"times-{next(_numbers)}"
    assert isinstance(one, RedisStore)
    await stores[1].heartbeat(name, "dead", 1, ["record"], "")
    for _ in range(3):
        await one.heartbeat(name, "me", 1, [], "")
    client.delete(one.keys.beats(name))
    await one.heartbeat(name, "me", 1, [], "")

    async def silent() -> bool:
        found = (await one.heartbeat(name, "me", 1, [], "")).members
        return found[0].silent_ms >= 1_000

    await wait_until_async(silent, "the dead sidecar is silent")


class Ready:
    """The ready messages of one subscription's sidecars. Each has beaten before."""

    def __init__(self, name: str, boots: dict[str, int]) -> None:
        self.name = name
        self.boots = boots

    @classmethod
    async def of(cls, store: Store, names: Sequence[str], name: str) -> "Ready":
        made = cls(name, {each: await store.register(name, each) for each in names})
        for each in names:
            await made.says(store, each, 0)
        return made

    async def says(self, store: Store, who: str, count: int) -> None:
        await store.heartbeat(self.name, who, self.boots[who], [], "", ReadyReport(count))

    async def hears(self, store: Store, who: str, count: int = 0) -> Mapping[str, int] | None:
        report = ReadyReport(count, wants=True)
        return (await store.heartbeat(self.name, who, self.boots[who], [], "", report)).ready


async def test_who_wants_some_hears_where_messages_lie_ready(store: Store) -> None:
    ready = await Ready.of(store, NAMES, fresh_key().subscription)
    assert await ready.hears(store, "b") == {}
    await ready.says(store, "a", 8)
    await ready.says(store, "c", 2)
    for _ in range(2):
        assert await ready.hears(store, "b") == {"a": 8, "c": 2}
        await ready.says(store, "a", 8)
    found = await store.heartbeat(ready.name, "b", ready.boots["b"], [], "")
    assert found.ready is None  # it was not asked
    await ready.says(store, "a", 0)
    await ready.says(store, "c", 512)
    assert await ready.hears(store, "b") == {"c": 512}
    await store.forget(ready.name, "c", ready.boots["c"])
    assert await ready.hears(store, "b") == {}


async def test_r24_an_earlier_process_of_the_name_says_nothing_of_ready_messages(
    store: Store,
) -> None:
    ready = await Ready.of(store, NAMES, fresh_key().subscription)
    before = Ready(ready.name, dict(ready.boots))
    ready.boots["a"] = await store.register(ready.name, "a")
    await ready.says(store, "a", 4)
    await before.says(store, "a", 64)
    assert await ready.hears(store, "b") == {"a": 4}


async def test_nobody_goes_to_one_that_has_fallen_silent(store: Store) -> None:
    """Until it is back: then it counts again, though its number did not change."""
    ready = await Ready.of(store, NAMES, fresh_key().subscription)
    await ready.says(store, "a", 8)

    async def left_out() -> bool:
        return not await ready.hears(store, "b")

    assert not await left_out()
    await wait_until_async(left_out, "the silent sidecar is left out")

    async def back() -> bool:
        await ready.says(store, "a", 8)
        return await ready.hears(store, "b") == {"a": 8}

    await wait_until_async(back, "it counts again")


async def test_of_many_a_few_are_named_and_large_numbers_more_often(store: Store) -> None:
    names = [f"sidecar-{number:02}" for number in range(40)]
    ready = await Ready.of(store, names, fresh_key().subscription)
    counts = {each: 1 << number // 5 for number, each in enumerate(names)}
    found = Counter[str]()
    for turn in range(600):
        who = names[turn % 40]
        one = await ready.hears(store, who, counts[who])
        if turn >= 40:
            assert one is not None
            assert len(one) == READY_MAX
            assert one == {each: counts[each] for each in one}
            found.update(one)
    assert found.keys() == set(names)
    if isinstance(store, RedisStore):  # the memory store draws evenly
        assert sum(found[each] for each in names[20:]) > sum(found[each] for each in names[:20])


async def test_numbers_that_the_store_has_lost_are_told_again(
    client: Any, stores: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "TELL_AGAIN_US", 200_000)
    one = stores[0]
    assert isinstance(one, RedisStore)
    ready = await Ready.of(one, NAMES, f"lost-{next(_numbers)}")
    await ready.says(one, "a", 8)
    assert client.delete(one.keys.ready(ready.name)) == 1

    async def again() -> bool:
        await ready.says(one, "a", 8)
        return await ready.hears(one, "b") == {"a": 8}

    await wait_until_async(again, "the number is back")


async def test_numbers_of_ready_messages_cost_the_others_nothing(
    client: Any, stores: list[Store]
) -> None:
    """All of 20 or of 200 change with each beat: the answer is as long, and the list the same."""
    sizes = []
    for members in (20, 200):
        names = [f"sidecar-{number:04}" for number in range(members)]
        ready = await Ready.of(stores[1], names, f"cost-{next(_numbers)}")
        mine = await Ready.of(stores[0], ["me"], ready.name)
        await mine.says(stores[0], "me", 0)
        first, most = None, 0
        for turn in range(3):
            for each in names:
                await ready.says(stores[1], each, 1 + turn)
            for key in client.scan_iter(f"*{ready.name}*:t"):  # nobody is silent meanwhile
                client.zadd(key, dict.fromkeys(client.zrange(key, 0, -1), 2**52))
            before = int(client.info("stats")["total_net_output_bytes"])
            report = ReadyReport(1 + turn, wants=True)
            found = await stores[0].heartbeat(ready.name, "me", mine.boots["me"], [], "", report)
            after = int(client.info("stats")["total_net_output_bytes"])
            assert found.ready is not None
            assert len(found.ready) == READY_MAX
            if first is not None:
                assert found.members is first
                most = max(most, after - before - len(str(client.info("stats"))))
            first = found.members
        sizes.append(most)
    assert sizes[1] < sizes[0] + 500
