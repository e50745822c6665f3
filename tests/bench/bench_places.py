"""What it costs to give broker messages their places: `python -m tests.bench.bench_places`.

Most arrive where they were stored. For some minutes after some came first as copies (an owner died
before it told the store of what it had drawn), the ids of all are looked for. Counts are the
server's own, processor time too; the least of several rounds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import redis

from ackd.core.sources import COPIES
from ackd.ports import AssignedPlace, StoredAt
from ackd.store.keys import Keys
from ackd.store.places import RedisPlaces
from ackd.store.scripts import Script
from tests.bench.measure import cpu_us, machine
from tests.contract.store.test_differential import CLOCK_KEY, with_clock
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary

BATCH = 32
A_SECOND = 320
"""Messages; so many ids are known when it begins as at this rate."""
KEEP_MS = 210_000
CALLS, ROUNDS = 200, 3
_ids = count()


class Bench:
    """A topic of `brokers` brokers. Its clock goes on by what `A_SECOND` says for each call."""

    def __init__(self, server: RedisServer, brokers: int) -> None:
        self.pid = server.process.pid
        self.client: Any = redis.Redis.from_url(server.url)
        self.brokers = brokers
        self._now_us = 1_800_000_000_000_000
        self._offset = count()
        script = self.client.register_script(with_clock("ids", "places"))

        async def run(key: str, _: Script, words: Sequence[str | bytes | int]) -> Any:
            return script(keys=[key], args=words)

        self.places = RedisPlaces(Keys("bench"), run)

    async def call(self, make: Callable[[int], tuple[int, int]]) -> None:
        """A batch of messages that nobody knows; `make`: partition and offset of each."""
        self._now_us += 1_000_000 * BATCH // A_SECOND
        self.client.set(CLOCK_KEY, self._now_us)
        batch = [
            StoredAt(b"%032X" % next(_ids), AssignedPlace(*make(each)), self._now_us // 1_000)
            for each in range(BATCH)
        ]
        assert (await self.places.assign("s", bytes(16), KEEP_MS, batch)).cuts == []

    def usual(self, each: int) -> tuple[int, int]:
        """Where it was stored, on one of the brokers."""
        return each % self.brokers * 16, next(self._offset)

    def copy(self, _: int) -> tuple[int, int]:
        """In the broker's topic of copies."""
        return COPIES, next(self._offset)

    async def costs(self, make: Callable[[int], tuple[int, int]]) -> tuple[float, float]:
        """Commands within the script, and us of the server, for a message."""
        found: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            self.client.config_resetstat()
            before_us = cpu_us(self.pid)
            for _ in range(CALLS):
                await self.call(make)
            took_us = cpu_us(self.pid) - before_us
            stats = self.client.info("commandstats")
            inner = sum(stats[f"cmdstat_{each}"]["calls"] for each in ("hget", "hset", "hlen"))
            number = CALLS * BATCH
            found.append((inner / number, took_us / number))
        return min(each[0] for each in found), min(each[1] for each in found)


async def run() -> None:
    """All rows, as a table."""
    sys.stdout.write(f"{machine()}\n")
    for brokers in (1, 2):
        with RedisServer(RedisOptions(binary(Flavour.VALKEY))) as server:
            bench = Bench(server, brokers)
            for _ in range(KEEP_MS * A_SECOND // BATCH // 1_000):
                await bench.call(bench.usual)
            for what, make in (
                ("where they were stored", bench.usual),
                ("copies that nobody knows", bench.copy),
                ("where they were stored, copies came before", bench.usual),
            ):
                commands, took_us = await bench.costs(make)
                sys.stdout.write(
                    f"{brokers} brokers | {what} | {commands:.1f} commands | {took_us:.1f} us\n"
                )


if __name__ == "__main__":
    asyncio.run(run())
