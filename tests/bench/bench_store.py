"""What the store costs: `python -m tests.bench.bench_store`; figures into .cache/bench/store.json.

CPU time of the server process and of this one, not wall-clock rates, because the machine may be
busy; the least of several rounds. AOF everysec, unix socket, one call in flight, acks in random
order within 2,000 offsets. The figures stand in docs/benchmarks.md.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count

from ackd.config.schema import StoreSettings
from ackd.core.ids import LedgerKey
from ackd.core.record.operations import Advance, Drop, Grant, Op, Settle
from ackd.core.record.protocol import Open, RecordCall, RecordReply
from ackd.core.record.transitions import Outcome, Verb
from ackd.ports import Store
from ackd.store.build import open_store
from ackd.store.flusher import Flusher, LedgerHandle
from tests.bench.measure import cpu_us, machine
from tests.support.paths import CACHE, REPO
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary

SPREAD = 2_000
ROUNDS = 3
SIZES = ((1, 3_000), (32, 32_000), (500, 100_000))
OPEN = 100_000
_keys = count(1)


@dataclass
class Bench:
    """A partition on a server."""

    server: RedisServer
    store: Store
    key: LedgerKey
    term: int = 0
    seq: int = 0

    async def call(self, ops: Sequence[Op]) -> RecordReply:
        """As its owner."""
        self.seq += 1
        return (await self.store.apply([RecordCall(self.key, ops, self.term, self.seq)]))[0]

    async def begin(self) -> None:
        """Take a fresh partition."""
        topic = next(_keys).to_bytes(16, "big")
        self.key = LedgerKey("MkU3OEVBNTcwNTJENDM2Qk", "orders", topic, 3)
        snapshot = await self.store.open(Open(self.key, "bench#1", 1, 2, 0, create_at=0))
        self.term, self.seq = snapshot.term, snapshot.seq

    async def lease(self, offsets: range, size: int) -> list[Settle]:
        """Lease all; returns the acks."""
        acks = []
        for start in range(offsets.start, offsets.stop, size):
            ops = [Grant.of(o, 3_600_000, 1) for o in range(start, min(start + size, offsets.stop))]
            reply = await self.call(ops)
            acks += [
                Settle(Verb.ACK, op.offset, r.fence, reply.rollback_epoch, 1)
                for op, r in zip(ops, reply.results, strict=True)
            ]
        return acks

    async def settle(self, acks: Sequence[Settle], size: int) -> None:
        """Settle all; each must succeed."""
        for start in range(0, len(acks), size):
            reply = await self.call(acks[start : start + size])
            if any(r.outcome is not Outcome.ACKED for r in reply.results):
                raise RuntimeError("an ack did not count")

    def facts(self) -> tuple[int, int, int]:
        """CPU us of the server and of this process, bytes of the AOF."""
        aof = int(str(self.server.info("persistence")["aof_current_size"]))
        return cpu_us(self.server.process.pid), time.process_time_ns() // 1000, aof

    async def cost(self, work: Callable[[], Awaitable[object]], items: int) -> dict[str, float]:
        """Per item: us of the server, us of the client, bytes of the AOF."""
        before = self.facts()
        await work()
        after = self.facts()
        names = ("server_us", "client_us", "aof_bytes")
        return {
            name: round((b - a) / items, 2) for name, a, b in zip(names, before, after, strict=True)
        }


def shuffled(acks: Sequence[Settle]) -> list[Settle]:
    """Random order within a window, as parallel workers finish."""
    rng = random.Random(7)
    result = list(acks)
    for start in range(0, len(result), SPREAD):
        part = result[start : start + SPREAD]
        rng.shuffle(part)
        result[start : start + SPREAD] = part
    return result


def least(rows: list[dict[str, float]]) -> dict[str, float]:
    """The least of each figure."""
    return {name: min(row[name] for row in rows) for name in rows[0]}


async def calls(bench: Bench) -> dict[str, object]:
    """Lease and ack at several sizes of a call."""
    found: dict[str, object] = {}
    for size, items in SIZES:
        leases, acks = [], []
        for _ in range(ROUNDS):
            await bench.begin()
            tokens: list[Settle] = []

            async def lease(
                size: int = size, items: int = items, into: list[Settle] = tokens
            ) -> None:
                into += await bench.lease(range(items), size)

            leases.append(await bench.cost(lease, items))
            order = shuffled(tokens)

            async def settle(size: int = size, order: list[Settle] = order) -> None:
                await bench.settle(order, size)

            acks.append(await bench.cost(settle, items))
        found[str(size)] = {"lease": least(leases), "ack": least(acks)}
    return found


async def memory(bench: Bench) -> dict[str, object]:
    """Bytes of 100,000 leases, then of as many acks above a stuck head; time of a takeover."""

    def used() -> int:
        return int(str(bench.server.info("memory")["used_memory"]))

    async def takeover_ms() -> float:
        began = time.perf_counter()
        snapshot = await bench.store.open(Open(bench.key, "bench#1", 1, 2, 0, term=bench.term))
        bench.seq = snapshot.seq
        return round((time.perf_counter() - began) * 1000, 1)

    await bench.begin()
    before = used()
    acks = await bench.lease(range(OPEN + 1), 500)
    leased, leased_ms = used() - before, await takeover_ms()
    await bench.settle(shuffled(acks[1:]), 500)
    stuck, stuck_ms = used() - before, await takeover_ms()
    began = time.perf_counter()
    await bench.call([acks[0], Advance(OPEN + 1), Drop(OPEN + 1)])
    return {
        "leases_bytes": leased,
        "takeover_with_leases_ms": leased_ms,
        "acks_above_stuck_head_bytes": stuck,
        "takeover_with_stuck_head_ms": stuck_ms,
        "release_ms": round((time.perf_counter() - began) * 1000, 2),
        "left_bytes": used() - before,
    }


async def grouped(bench: Bench) -> dict[str, float]:
    """The flusher: 64 callers with one ack each, so that calls of about 32 items form."""
    await bench.begin()
    handle = LedgerHandle(bench.key, bench.term, bench.seq)
    flusher = Flusher(bench.store)
    items = 20_000
    tokens = await bench.lease(range(items), 500)
    handle.seq = bench.seq

    async def caller(number: int) -> None:
        for ack in tokens[number::64]:
            reply = await flusher.submit(handle, [ack])
            if reply.results[0].outcome is not Outcome.ACKED:
                raise RuntimeError("an ack did not count")

    async def all_callers() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(64):
                tasks.create_task(caller(number))

    async with asyncio.TaskGroup() as tasks:
        runner = tasks.create_task(flusher.run())
        found = await bench.cost(all_callers, items)
        runner.cancel()
    return found


async def measure(flavour: Flavour) -> dict[str, object]:
    """Everything on one kind of server."""
    with RedisServer(RedisOptions(binary(flavour), unix_socket=True)) as server:
        store = open_store(StoreSettings(url=f"unix://{server.socket_path}"), REPO)
        await store.start()
        try:
            bench = Bench(server, store, LedgerKey("", "", b"", 0))
            await bench.begin()
            return {
                "per_call": await calls(bench),
                "flusher_64_callers": await grouped(bench),
                "memory": await memory(bench),
            }
        finally:
            await store.close()


def main() -> None:
    """Measure the embedded kind, a recent Redis and the oldest one."""
    found: dict[str, object] = {"machine": machine()}
    for flavour in Flavour:
        found[flavour.value] = asyncio.run(measure(flavour))
    path = CACHE / "bench" / "store.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(path.read_text())  # noqa: T201 - a command that prints its figures


if __name__ == "__main__":
    main()
