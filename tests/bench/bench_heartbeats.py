"""What heartbeats cost: `python -m tests.bench.bench_heartbeats`; figures into
.cache/bench/heartbeats.json.

A sidecar with ten subscriptions beats with the engine's own `Heartbeat`, on a real Valkey that
knows N sidecars of each. The others' entries lie there as their heartbeats wrote them and stay
alive, since nothing of a quiet beat depends on who sends it. CPU time is that of the processes, so
a busy machine changes it little: cost of a beat x beats a second = cores.

Under load the number of ready messages changes: with each beat, or with each tenth. A sidecar whose
application waits asks where messages lie ready. Measured alone and together, as the worst case: all
sidecars have messages, all numbers change, and all ask.

The store's cost is measured twice: with one sidecar, where the server sleeps between two beats and
begins each with cold caches, and with the same calls back to back from eight connections, as it is
among many. Then one of the sidecars dies, and what it had is taken.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import process_time_ns
from typing import Any

import redis

from ackd.config.schema import StoreSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.core.ids import LedgerKey, TopicPartition
from ackd.core.lease_token import LeaseKeys
from ackd.core.record.protocol import Open
from ackd.engine.base.context import Context, SystemClock
from ackd.engine.base.replay_log import ReplayLog
from ackd.engine.base.spill_file import Spill
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.heartbeat import Heartbeat
from ackd.engine.cluster.members import MemberNote, beat_ms, write_note
from ackd.engine.cluster.membership import Membership
from ackd.engine.cluster.ready_counts import pause_ms
from ackd.engine.cluster.settings_drift import settings_marks
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.peers.links import PeerLinks
from ackd.engine.peers.sharing import PeerSharing
from ackd.ports import Store
from ackd.store.build import open_store
from ackd.store.exchange import Exchange
from ackd.store.flusher import Flusher
from ackd.store.redis import RedisStore
from ackd.store.roster import QUIET
from ackd.store.scripts import MEMBERS
from ackd.telemetry.metrics import Metrics
from tests.bench.measure import cpu_us, machine
from tests.support.paths import CACHE, REPO
from tests.support.redis import Flavour, RedisOptions, RedisServer, binary
from tests.unit.engine.world import TestBroker, TestConsumer

SUBSCRIPTIONS = 10
PARTITIONS = 10
BEATS = 100
SIZES = (100, 300, 1_000)
ORPHANS = 100
CONNECTIONS = 8
SURVIVORS = 2
FUTURE_S = 36_000
SETTINGS = SubscriptionSettings(topics=("orders",))
NOTE = MemberNote(
    version="0.1.0",
    settings=settings_marks("orders", SETTINGS),
    peer="10.0.0.1:7071",
    signs=True,
    counts=True,
)


class Owner:
    """What a heartbeat tells ownership. `orphans`: what it was to take."""

    def __init__(self) -> None:
        self.orphans: list[str] = []

    def take(self, tp: TopicPartition) -> None: ...
    def drop_all(self) -> None: ...
    def retry_takes(self) -> None: ...
    def settle_repairs(self) -> None: ...

    async def take_orphans(self, orphans: list[str]) -> None:
        self.orphans = orphans


@dataclass(frozen=True)
class Load:
    """What changes. `share`: of the beats that tell another number of ready messages, and of the
    others that have some. `asks`: everybody wants to know where messages lie ready, and asks as
    often as it may.
    """

    share: float
    asks: bool

    def tells(self, number: int) -> bool:
        """Whether this beat, or this sidecar, is one of those."""
        return self.share > 0 and number % round(1 / self.share) == 0

    def count(self, number: int) -> int:
        """Another number than the last one that was told."""
        return 1 << (number // max(round(self.share and 1 / self.share), 1)) % 8


LOADS = [Load(0, asks=False), Load(0.1, asks=False), Load(1, asks=False)]
LOADS += [Load(0.1, asks=True), Load(1, asks=True)]


class Partitions(OwnedPartitions):
    """Has so many messages ready."""

    ready = 0

    def held(self) -> tuple[int, int]:
        return self.ready, 0


class LiveValue:
    """Nothing is changed live."""

    def received(self, there: bytes, now_ms: int) -> None: ...
    def look(self) -> None: ...
    async def repair(self) -> None: ...


def no_spill(name: str, most: int) -> Spill:
    """No body is spilled here."""
    raise NotImplementedError(name, most)


def keys(name: str, sidecar: int, count: int = PARTITIONS) -> list[LedgerKey]:
    """The records that a sidecar owns."""
    first = sidecar * ORPHANS
    return [LedgerKey("MkU3OEVBNTcwNTJENDM2Qk", name, bytes(16), first + n) for n in range(count)]


def texts(name: str, sidecar: int, count: int = PARTITIONS) -> list[str]:
    """Their names."""
    return [key.text() for key in keys(name, sidecar, count)]


def identity(number: int) -> str:
    """The name of a sidecar, as a Deployment would give it."""
    return f"orders-7d9f8b6c5-{number:05}"


@dataclass
class Sidecar:
    """One process with ten subscriptions."""

    store: Store
    beats: list[Heartbeat]
    owners: list[Owner]
    views: list[Membership]
    partitions: list[Partitions]

    @classmethod
    async def made(cls, store: Store, number: int, names: list[str]) -> Sidecar:
        """Registered."""
        clock, flusher = SystemClock(), Flusher(store)
        context = Context(
            store,
            flusher,
            clock,
            identity(number),
            LeaseKeys({1: b"k" * 16}, 1),
            Metrics(),
            ReplayLog(flusher, clock, lambda: store.run),
            5_000,
            no_spill,
        )
        made = cls(store, [], [], [], [])
        links = PeerLinks(None, clock, context.vitals)
        none: Any = None  # nothing is delivered here
        for name in names:
            consumer = TestConsumer()
            state = SubscriptionState(name, SETTINGS, TestBroker(consumer), consumer, f"c:{name}")
            member = Membership(state, context, NOTE)
            sharing = PeerSharing(
                state, context, member, none, none, none, links, print, print, print
            )
            state.signals.members.connect(sharing.others_seen)
            partitions = Partitions(context.identity)
            partitions.set_aside = {
                TopicPartition("orders", key.partition): key.text() for key in keys(name, number)
            }
            owner = Owner()
            beat = Heartbeat(state, context, member, partitions, owner, LiveValue(), lambda _: None)
            await beat.register()
            made.beats.append(beat)
            made.owners.append(owner)
            made.views.append(member)
            made.partitions.append(partitions)
        return made

    def has_ready(self, count: int) -> None:
        """So many messages lie ready."""
        for each in self.partitions:
            each.ready = count

    def time_passes(self, beat: int, others: int, *, asks: bool) -> None:
        """Each second or third beat may say another number and ask; `asks`: receives have found
        nothing.
        """
        for each in self.views if beat % beats_apart(others) == 0 else ():
            each._counts._ask_ms = each._counts._say_ms = 0
            if asks:
                each.want_ready()

    async def beat(self) -> None:
        """Once for each subscription, as they wake together."""
        await asyncio.gather(*(each._beat() for each in self.beats))


def beats_apart(others: int) -> int:
    """How many heartbeats after another a sidecar asks again, or says another number."""
    return pause_ms(others) // beat_ms(others) + 1


async def fill(store: Store, name: str, first: int, last: int) -> None:
    """The other sidecars' entries."""
    note = write_note(NOTE)
    for number in range(first, last):
        boot = await store.register(name, identity(number))
        count = ORPHANS if number == last - 1 else PARTITIONS
        await store.heartbeat(name, identity(number), boot, texts(name, number, count), note)


def stay_alive(client: Any) -> None:
    """Date the heartbeats of all sidecars into the future."""
    far_us = (client.time()[0] + FUTURE_S) * 1_000_000
    for key in client.scan_iter("*:t"):
        client.zadd(key, dict.fromkeys(client.zrange(key, 0, -1), far_us))


def traffic(client: Any) -> int:
    """Bytes that the server has read and written."""
    stats = client.info("stats")
    return int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"])


async def back_to_back(
    server: RedisServer, client: Any, sidecar: Sidecar, names: list[str], load: Load
) -> float:
    """The store's us for a beat of one subscription, when it gets one call after the other."""
    store = sidecar.store
    assert isinstance(store, RedisStore)
    rosters = store._heartbeats._rosters
    since = [rosters[name, identity(0)]._since for name in names]
    members = [store.keys.members(name) for name in names]
    count, apart = BEATS * 5, beats_apart(len(sidecar.views[0].alive))
    stalls: list[int] = []  # a connection of a busy machine may be silent for a second

    async def connection(number: int) -> None:
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(Exchange, str(server.socket_path))
        for beat in range(count):
            wants = b"1" if load.asks and beat % apart == 1 else b""
            told = b"%d" % load.count(beat) if load.tells(beat) and not beat % apart else b""
            words = [w for each in since for w in (identity(number), 1, each, 1, b"", told, wants)]
            command = ("EVALSHA", MEMBERS.sha, len(members), *members, "heartbeat", *words)
            (answer,) = await link.ask([command], 60)
            if any(each and len(each) != QUIET for each in answer[1:]):
                stalls.append(beat)
        await link.drop()

    stay_alive(client)
    before = cpu_us(server.process.pid)
    await asyncio.gather(*(connection(1 + number) for number in range(CONNECTIONS)))
    spent_us = cpu_us(server.process.pid) - before
    if len(stalls) > count * CONNECTIONS // 20:
        raise RuntimeError("these were no quiet beats")
    return spent_us / count / CONNECTIONS / len(names)


async def filled(server: RedisServer, client: Any, names: list[str], sidecars: int) -> None:
    """A store that knows so many sidecars of each subscription; number 0 is yet to come."""
    filler = open_store(StoreSettings(url=f"unix://{server.socket_path}"), REPO)
    client.flushall()
    await fill(filler, names[0], 1, sidecars)
    await filler.close()
    for key in list(client.scan_iter("*")):
        for name in names[1:]:
            client.copy(key, key.replace(names[0].encode(), name.encode()))
    stay_alive(client)


def others_tell(client: Any, names: list[str], sidecars: int, beat: int, load: Load) -> None:
    """The other sidecars' numbers change, too."""
    pipe = client.pipeline(transaction=False)
    for key in [each for name in names for each in client.scan_iter(f"*:{name}}}:e")]:
        told = {identity(n): load.count(beat + n) for n in range(1, sidecars) if load.tells(n)}
        if told:
            pipe.zadd(key[:-1] + b"q", told)
    pipe.execute()


async def costs(server: RedisServer, client: Any, sidecars: int, load: Load) -> dict[str, float]:
    """Costs of one sidecar's beats, when nobody's partitions change."""
    names = [f"orders-{number}" for number in range(SUBSCRIPTIONS)]
    await filled(server, client, names, sidecars)
    store = open_store(StoreSettings(url=f"unix://{server.socket_path}"), REPO)
    await store.start()
    sidecar = await Sidecar.made(store, 0, names)
    for _ in range(5):
        await sidecar.beat()
    stay_alive(client)
    pid = server.process.pid
    gc.collect()
    rows: list[list[float]] = []
    for batch in range(3):
        others_tell(client, names, sidecars, batch, load)
        before = cpu_us(pid), process_time_ns() // 1_000, traffic(client)
        for beat in range(BEATS):
            if load.tells(beat):
                sidecar.has_ready(load.count(beat))
            sidecar.time_passes(beat, sidecars - 1, asks=load.asks)
            await sidecar.beat()
        after = cpu_us(pid), process_time_ns() // 1_000, traffic(client)
        rows.append([(b - a) / BEATS for a, b in zip(before, after, strict=True)])
    store_us, caller_us, size = map(min, zip(*rows, strict=True))
    among_us = min([await back_to_back(server, client, sidecar, names, load) for _ in range(5)])
    rate = 1_000 / beat_ms(len(sidecar.views[0].alive))
    await store.close()
    return {
        "sidecars": sidecars,
        "changing": load.share,
        "asks": load.asks,
        "beats_s": round(rate, 2),
        "beat_store_us": round(among_us, 1),
        "beat_store_us_alone": round(store_us / SUBSCRIPTIONS, 1),
        "beat_caller_us": round(caller_us / SUBSCRIPTIONS, 1),
        "beat_bytes": round(size / SUBSCRIPTIONS),
        "store_cores": round(among_us * SUBSCRIPTIONS * rate * sidecars / 1e6, 3),
        "caller_cores": round(caller_us * rate / 1e6, 4),
        "store_mb_s": round(size * rate * sidecars / 1e6, 2),
    }


class Taking:
    """A few sidecars that run, and take what all of the survivors would take."""

    def __init__(self, sidecars: list[Sidecar], name: str, dead: int) -> None:
        self.sidecars = sidecars
        self.left = {key.text(): key for key in keys(name, dead, ORPHANS)}
        self.dead = identity(dead)
        self.noticed = asyncio.Event()
        self.all_taken = asyncio.Event()

    async def beat(self, sidecar: Sidecar, part: int) -> None:
        """Beat, and open what its part of the survivors would open."""
        clock = SystemClock()
        while not self.all_taken.is_set():
            began_ms = clock.monotonic_ms()
            await sidecar.beat()
            view = sidecar.views[0].view
            for member in view.dead:
                if member.name != self.dead:
                    continue
                self.noticed.set()
                won = [hash(view.winner(text)) % len(self.sidecars) for text in member.owned]
                mine = [text for text, who in zip(member.owned, won, strict=True) if who == part]
                taken = [self.left.pop(text) for text in mine if text in self.left]
                asked = [Open(key, "me#1", 1, 1, 0, create_at=0) for key in taken]
                await asyncio.gather(*map(sidecar.store.open, asked))
            if not self.left:
                self.all_taken.set()
            rest_ms = beat_ms(len(sidecar.views[0].alive)) - (clock.monotonic_ms() - began_ms)
            await asyncio.sleep(max(rest_ms, 0) / 1_000)


async def takeover(server: RedisServer, client: Any, sidecars: int) -> dict[str, float]:
    """From the last heartbeat of a sidecar with 100 partitions until others own all of them."""
    name = "orders-0"
    await filled(server, client, [name], sidecars)
    running = []
    for number in range(SURVIVORS):
        store = open_store(StoreSettings(url=f"unix://{server.socket_path}"), REPO)
        await store.start()
        running.append(await Sidecar.made(store, sidecars + number, [name]))
    taking = Taking(running, name, sidecars - 1)
    clock = SystemClock()
    async with asyncio.TaskGroup() as tasks:
        for part, sidecar in enumerate(running):
            tasks.create_task(taking.beat(sidecar, part))
            await asyncio.sleep(beat_ms(sidecars) / 1_000 / SURVIVORS)
        await asyncio.sleep(3)
        seconds, micros = client.time()
        (key,) = client.scan_iter("*:t")
        client.zadd(key, {identity(sidecars - 1): seconds * 1_000_000 + micros})
        died_ms = clock.monotonic_ms()
        await taking.noticed.wait()
        noticed_ms = clock.monotonic_ms()
        await taking.all_taken.wait()
        taken_ms = clock.monotonic_ms()
    for sidecar in running:
        await sidecar.store.close()
    return {
        "sidecars": sidecars,
        "partitions": ORPHANS,
        "noticed_ms": noticed_ms - died_ms,
        "taken_ms": taken_ms - died_ms,
    }


async def measure(sizes: list[int]) -> dict[str, object]:
    """The table."""
    found: dict[str, object] = {"machine": machine()}
    with RedisServer(RedisOptions(binary(Flavour.VALKEY), unix_socket=True)) as server:
        client: Any = redis.Redis(unix_socket_path=str(server.socket_path))
        rows = found["costs"] = []
        for size, load in product(sizes, LOADS):
            rows.append(await costs(server, client, size, load))
            print(json.dumps(rows[-1]), flush=True)  # noqa: T201 - a command that prints figures
        found["takeover"] = [await takeover(server, client, max(sizes)) for _ in range(3)]
        print(json.dumps(found["takeover"]))  # noqa: T201
    return found


def main() -> None:
    """Print the figures and keep them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    found = asyncio.run(measure(parser.parse_args().sizes))
    path = Path(CACHE) / "bench" / "heartbeats.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
