"""The rate and the bound of leases that sidecars share: local broker, a real Valkey.

Bounds from above are counted against the time that has passed, so no slow machine breaks them.
Those from below leave out the time for which this process could not run.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest

from ackd.errors import StoreError
from ackd_torture.ports import free_port
from tests.conftest import RedisFactory
from tests.integration.engine.together import NAME, Sidecar, Together
from tests.support.proc import Process
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.alone, pytest.mark.redis, pytest.mark.timeout(240)]

RATE = 200
BURST = 40
LIMITS = {"rate_per_s": float(RATE), "rate_burst": BURST, "lease_ms": 600_000}
TICK_S = 0.01
Receive = Callable[[], Awaitable[int]]


@dataclass
class Watch:
    """Counts what comes, and sees that it is never more than the rate allows."""

    bursts: int = 1
    begin_s: float = field(default_factory=time.monotonic)
    stalled_s: float = 0.0
    total: int = 0
    by: dict[str, int] = field(default_factory=dict)

    def came(self, name: str, count: int) -> None:
        """So many messages came from one sidecar."""
        self.total += count
        self.by[name] = self.by.get(name, 0) + count
        elapsed_s = time.monotonic() - self.begin_s
        assert self.total <= self.bursts * BURST + RATE * elapsed_s + 1, f"after {elapsed_s} s"

    async def stalls(self) -> None:
        """Add up the time for which nothing could run."""
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(TICK_S)
            self.stalled_s += max(time.monotonic() - before_s - 2 * TICK_S, 0)

    async def consume(self, name: str, receive: Receive, until: int) -> None:
        """Receive until all together have got so many."""
        while self.total < until:
            self.came(name, await receive())


@asynccontextmanager
async def watched(bursts: int = 1) -> AsyncIterator[Watch]:
    """A watch that looks for stalls meanwhile."""
    watch = Watch(bursts)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(watch.stalls())
        yield watch
        looking.cancel()


def receiving(sidecar: Sidecar, most: int = 50) -> Receive:
    """Short waits, so that nobody waits past the end of a test."""

    async def receive() -> int:
        return len((await sidecar.receive(most=most, wait_ms=300)).messages)

    return receive


async def test_two_sidecars_keep_the_rate_together_and_share_it(together: Together) -> None:
    one, two = await together.pair(**LIMITS)
    count = BURST + 3 * RATE
    await one.publish(count * 2)
    async with watched() as watch, asyncio.TaskGroup() as group:
        for sidecar in (one, two):
            name = sidecar.runtime.settings.identity
            group.create_task(watch.consume(name, receiving(sidecar), count))
    elapsed_s = time.monotonic() - watch.begin_s
    assert elapsed_s <= 3 * 1.05 + watch.stalled_s, f"too slow: {watch}"
    assert min(watch.by.values()) >= count / 5, f"not fair: {watch.by}"
    waits = one.runtime.metrics.registry.get_sample_value(
        "ackd_rate_waits_total", {"subscription": NAME}
    )
    assert waits


async def test_receive_says_that_the_rate_holds_it_and_a_change_frees_it(
    together: Together,
) -> None:
    """An impatient receive gets what there is, and the reason when there is nothing."""
    one = await together.start("one", rate_per_s=0.5, rate_burst=3)
    await one.publish(40)

    async def fetched() -> bool:
        return sum(row.ready for row in await one.runtime.lag(NAME)) == 40

    await wait_until_async(fetched, "messages to be there")
    assert "rate" not in (await one.runtime.explain(NAME)).limits  # nobody has asked for anything
    assert len((await one.receive(most=10, wait_ms=0)).messages) == 3
    empty = await one.receive(most=10, wait_ms=0)
    assert (empty.messages, empty.limited_by) == ([], "rate")
    assert "rate" in (await one.runtime.explain(NAME)).limits
    await one.runtime.configure(NAME, {"rate_per_s": 0})
    assert len(await one.collect(37)) == 37


CONFIG = """
identity = "victim"
state_dir = "{folder}/victim"
[server]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin_port}"
[store]
url = "{url}"
prefix = "{prefix}"
[brokers.b]
adapter = "local"
[brokers.b.options]
path = "{folder}/queue"
[subscriptions.{name}]
topics = ["{topic}"]
group = "{topic}"
start = "earliest"
retry_topic = false
rate_per_s = {rate}
rate_burst = {burst}
lease_ms = 600000
"""


async def test_a_killed_sidecar_takes_a_slice_with_it_and_no_more(
    together: Together, tmp_path: Path
) -> None:
    """Kill -9 while it holds tokens: never above the rate, and the survivor has all of it."""
    one = await together.start("one", **LIMITS)
    ports = {"port": free_port(), "admin_port": free_port()}
    config = tmp_path / "victim.toml"
    config.write_text(
        CONFIG.format(
            folder=tmp_path,
            url=together.store.url,
            prefix=together.store.prefix,
            name=NAME,
            topic=together.topic,
            rate=RATE,
            burst=BURST,
            **ports,
        )
    )
    victim = Process(
        [sys.executable, "-m", "ackd", "serve", "--config", config], log_path=tmp_path / "log"
    )
    victim.start()
    base = f"http://127.0.0.1:{ports['port']}/v1/subscriptions/{NAME}/receive"
    try:
        async with aiohttp.ClientSession() as client:

            async def shared() -> bool:
                return len(await one.owned()) == 2

            await wait_until_async(shared, "the victim to have partitions", timeout_s=60)
            await one.publish(4 * 900)

            async def receive() -> int:
                try:
                    body = {"max": 50, "wait_ms": 300}
                    async with client.post(base, json=body) as answer:
                        return len((await answer.json())["messages"])
                except aiohttp.ClientError:
                    return 0

            async with watched() as watch:
                async with asyncio.TaskGroup() as group:
                    group.create_task(watch.consume("one", receiving(one), 2 * RATE))
                    group.create_task(watch.consume("victim", receive, 2 * RATE))
                victim.kill()
                assert watch.by["victim"] > 0
                killed_s, before, stalled_s = time.monotonic(), watch.total, watch.stalled_s
                await watch.consume("one", receiving(one), before + 3 * RATE)
            took_s = time.monotonic() - killed_s
            assert took_s <= 3 * 1.05 + watch.stalled_s - stalled_s + 0.3, f"{took_s} s: {watch}"
    finally:
        victim.kill()


async def test_a_store_that_forgot_its_bucket_gives_one_burst_more(
    together: Together, valkey: RedisServer
) -> None:
    """As after a failover that lost the last writes, or all of them."""
    one = await together.start("one", **LIMITS)
    await one.publish(2000)
    key = f"{together.store.prefix}:v1:{{members:{NAME}}}:r"
    async with watched(bursts=2) as watch:
        await watch.consume("one", receiving(one), BURST + RATE)
        with valkey.client() as client:
            assert client.delete(key) == 1
        await watch.consume("one", receiving(one), BURST + 2 * RATE)


async def test_the_rate_holds_when_the_store_is_killed_and_comes_back(
    together: Together, own_redis: RedisFactory
) -> None:
    """Nothing is handed out meanwhile; what the store has lost is one burst at most."""
    server = await asyncio.to_thread(own_redis, RedisOptions(binary(Flavour.VALKEY)))
    together.store = replace(together.store, url=server.url)
    one = await together.start("one", **LIMITS)
    await one.publish(2000)

    async def receive() -> int:
        try:
            return len((await one.receive(most=50, wait_ms=300)).messages)
        except StoreError:
            await asyncio.sleep(TICK_S)
            return 0

    async with watched(bursts=2) as watch:
        await watch.consume("one", receive, BURST + RATE)
        await asyncio.to_thread(server.kill)
        before = watch.total
        assert await receive() <= BURST
        await asyncio.to_thread(server.start)
        back_s, stalled_s = time.monotonic(), watch.stalled_s
        await watch.consume("one", receive, before + RATE)
        first_s = time.monotonic()
        await watch.consume("one", receive, before + 3 * RATE)
    assert time.monotonic() - first_s <= 2 * 1.05 + watch.stalled_s - stalled_s
    assert first_s - back_s < 60


async def test_leases_of_all_sidecars_together_keep_their_bound(together: Together) -> None:
    """Each sidecar has the share of its partitions, and says so when that is used up."""
    one = await together.start("one", in_flight_max=10)
    await one.publish(400)
    assert len(await one.collect(10)) == 10
    two = await together.start("two", in_flight_max=10)

    async def spread() -> bool:
        return [len(await each.owned()) for each in (one, two)] == [2, 2]

    await wait_until_async(spread, "the partitions to be shared", timeout_s=60)
    for _ in range(3):
        for sidecar in (one, two):
            await sidecar.receive(wait_ms=200)

    async def leased() -> int:
        return sum([row.leased for s in (one, two) for row in await s.runtime.lag(NAME)])

    assert await leased() == 10
    for sidecar in (one, two):
        assert (await sidecar.receive(wait_ms=0)).limited_by == "in-flight"
