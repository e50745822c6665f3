"""One partition and ten sidecars, each a process: `python -m tests.bench.bench_one_partition`.

    [--only local,kafka,pulsar,rocketmq] [--seconds 60] [--sidecars 10] [--skip bare,costs]

On one Valkey and a broker of its own. *Rate*: beside each sidecar works a worker of 20 ms that
takes one message at a time, over HTTP, from a backlog; messages a second beside those of one
sidecar alone, and the busiest worker beside the idlest. *Bare*: the same with ten consumers of
Kafka's share group or a Shared subscription of Pulsar, from the same topic. *Costs*: processor
time of sidecars and store for a message at 32, 10 and 1 a call, and the time from publishing to
the answer of a receive that waits, beside the owner and beside another one. The rates come as a
table, too, on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ackd.ports import Broker, Outgoing, Stored
from ackd_adapters.kafka import KafkaOptions
from ackd_adapters.kafka import adapter as kafka_adapter
from ackd_adapters.local import adapter as local_adapter
from ackd_adapters.local.config import LocalOptions
from ackd_adapters.pulsar import PulsarOptions
from ackd_adapters.pulsar import adapter as pulsar_adapter
from ackd_adapters.rocketmq import RocketMQOptions
from ackd_adapters.rocketmq import adapter as rocketmq_adapter
from ackd_torture.child import BrokerPart
from ackd_torture.parts import LocalQueue, Sidecar, SidecarPlan, Valkey, Value
from tests.bench.load import LEASE, Connection, Job, settle_items
from tests.bench.measure import cpu_us, drive, machine
from tests.bench.steady_workers import WARM_S, WORK_S
from tests.integration.engine.linked import begin
from tests.support.kafka import KafkaOptions as KafkaKind
from tests.support.parts import KafkaPart
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.pulsar.part import PulsarPart
from tests.support.rocketmq.part import RocketMQPart
from tests.support.wait import wait_until

BATCHES = {32: 12_000, 10: 6_000, 1: 1_500}
TRIPS = 300
BATCH = 500
TRIES = 5
AGAIN_S = 1.0
"""A broker that has just started may refuse some of a flood."""
SUB = "orders"
BARE = ("kafka", "pulsar")
Figures = dict[str, object]
Begun = Callable[[], None]


def opened(part: BrokerPart) -> Broker:
    """A connection to publish by."""
    options = part.options()
    if part.adapter == "kafka":
        return kafka_adapter.open("b", KafkaOptions(**options))  # type: ignore[arg-type]
    if part.adapter == "pulsar":
        return pulsar_adapter.open("b", PulsarOptions(**options))  # type: ignore[arg-type]
    if part.adapter == "rocketmq":
        return rocketmq_adapter.open("b", RocketMQOptions(**options))  # type: ignore[arg-type]
    local = LocalOptions(path=Path(str(options["path"])), partitions=1)
    return local_adapter.open("b", local)


def made(name: str, folder: Path) -> BrokerPart:
    """A broker of this bench, not yet started."""
    if name == "kafka":
        return KafkaPart(KafkaKind(fast_groups=True))
    if name == "pulsar":
        return PulsarPart()
    if name == "rocketmq":
        return RocketMQPart()
    return LocalQueue(folder, partitions=1)


@dataclass
class Site:
    """One broker, one store and some sidecars."""

    part: BrokerPart
    store: Valkey
    folder: Path
    topic: str
    sidecars: list[Sidecar] = field(default_factory=list)
    sections: dict[str, dict[str, Value]] = field(default_factory=dict)

    def start(self, count: int) -> None:
        """So many more."""
        plan = SidecarPlan(
            broker=self.part,
            store_url=self.store.url,
            topic=self.topic,
            sub=SUB,
            subscription={"in_flight_max": 10_000},
            sections=self.sections,
        )
        for _ in range(count):
            sidecar = Sidecar(f"s{len(self.sidecars) + 1}", plan, self.folder)
            sidecar.start()
            self.sidecars.append(sidecar)

    def stop(self) -> None:
        """All that run."""
        for each in self.sidecars:
            each.kill()

    async def publish(self, count: int) -> None:
        """Messages of 100 bytes."""
        broker = opened(self.part)
        await broker.start()
        try:
            for first in range(0, count, BATCH):
                await self.send(broker, min(BATCH, count - first))
        finally:
            await broker.close()

    async def send(self, broker: Broker, count: int) -> None:
        """One batch."""
        partition = 0 if broker.capabilities.explicit_partition else None
        value = json.dumps({"at_us": time.monotonic_ns() // 1000, "pad": "x" * 70}).encode()
        left = [Outgoing(self.topic, None, value, (), partition=partition) for _ in range(count)]
        for again in range(TRIES):
            told = await broker.publish(left)
            refused = [each for each in told if not isinstance(each, Stored)]
            if not refused:
                return
            if again == TRIES - 1:
                raise RuntimeError(f"not stored: {refused[0]}")
            left = left[: len(refused)]  # all are alike
            await asyncio.sleep(AGAIN_S)

    def cpu_us(self) -> tuple[int, int]:
        """Of all sidecars, and of the store."""
        return sum(cpu_us(each.pid) for each in self.sidecars), cpu_us(self.store.pid)

    def owner(self) -> Sidecar:
        """The one that owns the topic's partition, as all say."""

        def known() -> Sidecar | None:
            told = {owner_of(each, self.topic) for each in self.sidecars}
            return next((each for each in self.sidecars if {each.name} == told), None)

        found = wait_until(known, "one owner", timeout_s=60, ignoring=(OSError,))
        assert found is not None
        return found


def owner_of(sidecar: Sidecar, topic: str) -> str:
    """Whom this one names."""
    url = f"{sidecar.admin_url}/v1/subscriptions/{SUB}/lag"
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  http
        rows = json.load(answer)["partitions"]
    return next((str(row["owner"]) for row in rows if row["topic"] == topic), "")


async def connected(port: int) -> Connection:
    """To a sidecar."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    return connection


async def leases(connection: Connection, most: int, wait_ms: int) -> list[bytes]:
    """One receive."""
    body = b'{"max":%d,"wait_ms":%d}' % (most, wait_ms)
    return LEASE.findall(await connection.ask(f"/v1/subscriptions/{SUB}/receive", body))


async def ack(connection: Connection, held: list[bytes]) -> None:
    """One settle."""
    answer = await connection.ask("/v1/settle", b'{"items":' + settle_items(held) + b"}")
    if answer.count(b'"acked"') != len(held):
        raise RuntimeError(f"not acked: {answer!r}")


def worked(
    kind: str, address: str, topic: str, group: str, count: int, seconds: float, begun: Begun
) -> list[int]:
    """What each of these workers did, after all have been at it for a while."""
    argv = [sys.executable, "-m", "tests.bench.steady_workers", kind, address, topic, group]
    argv += [str(count), str(seconds)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=REPO) as workers:
        if workers.stdout is None or workers.stdout.readline() != "begun\n":
            raise RuntimeError("the workers could not begin")
        begun()
        output, _ = workers.communicate(timeout=seconds + 60)
    done: list[int] = json.loads(output)
    return done


def shared(site: Site, sidecars: list[Sidecar], seconds: float) -> Figures:
    """Rate and spread of workers beside these."""
    before: list[tuple[int, int]] = []
    ports = [each.port for each in sidecars]
    done = worked(
        "ackd",
        ",".join(str(each) for each in ports),
        site.topic,
        SUB,
        len(ports),
        seconds,
        lambda: before.append(site.cpu_us()),
    )
    after, total = site.cpu_us(), sum(done)
    return {
        "messages_per_s": round(total / seconds, 1),
        "by_worker": done,
        "busiest_to_idlest": round(max(done) / max(min(done), 1), 3),
        "sidecars_us": round((after[0] - before[0][0]) / total),
        "store_us": round((after[1] - before[0][1]) / total),
    }


def bare(site: Site, count: int, seconds: float) -> Figures:
    """The same with the broker's own client, ten consumers in one process."""
    options = site.part.options()
    address = str(options.get("bootstrap_servers") or options.get("service_url"))
    kind, group = site.part.adapter, f"bare-{count}"
    done = worked(kind, address, site.topic, group, count, seconds, lambda: None)
    return {
        "messages_per_s": round(sum(done) / seconds, 1),
        "by_worker": done,
        "busiest_to_idlest": round(max(done) / max(min(done), 1), 3),
    }


def cost(site: Site, at: Sidecar, batch: int, count: int) -> tuple[float, float]:
    """Processor time of sidecars and store for a message that an application gets and acks here."""
    asyncio.run(site.publish(count + 2 * batch))
    before = site.cpu_us()
    load = drive(Job(at.port, SUB, 4, batch, "separate", count, wait_ms=2_000), 1)
    after = site.cpu_us()
    if load.done < count * 0.95:
        raise RuntimeError(f"only {load.done} of {count} messages were acked")
    asyncio.run(emptied(at.port))
    return (after[0] - before[0]) / load.done, (after[1] - before[1]) / load.done


async def emptied(port: int) -> None:
    """Ack what is left."""
    connection = await connected(port)
    while held := await leases(connection, 500, 1_000):
        await ack(connection, held)


async def latency_ms(site: Site, ports: Sequence[int]) -> list[float]:
    """From publishing one message to the answer, median, at each in turn: what else happens on the
    machine meets all of them alike.
    """
    broker = opened(site.part)
    await broker.start()
    connections = [await connected(port) for port in ports]
    taken: list[list[float]] = [[] for _ in ports]
    for _ in range(TRIPS):
        for connection, found in zip(connections, taken, strict=True):
            waiting = begin(leases(connection, 1, 10_000))
            await asyncio.sleep(WORK_S)  # until it waits where it should
            start_s = time.perf_counter()
            await site.send(broker, 1)
            held = await waiting
            found.append((time.perf_counter() - start_s) * 1e3)
            await ack(connection, held)
    await broker.close()
    return [statistics.median(each) for each in taken]


def costs(site: Site, rounds: int) -> Figures:
    """Beside the owner and beside another one; the medians of some rounds."""
    owner = site.owner()
    other = next(each for each in site.sidecars if each is not owner)
    asyncio.run(emptied(owner.port))
    found: Figures = {}
    for batch, count in BATCHES.items():
        own: list[tuple[float, float]] = []
        peer: list[tuple[float, float]] = []
        for _ in range(rounds):
            own.append(cost(site, owner, batch, count))
            peer.append(cost(site, other, batch, count))
        row: dict[str, float] = {}
        for name, rows in (("own", own), ("peer", peer)):
            row[f"{name}_sidecars_us"] = round(statistics.median([each[0] for each in rows]), 1)
            row[f"{name}_store_us"] = round(statistics.median([each[1] for each in rows]), 1)
        row["times"] = round(row["peer_sidecars_us"] / row["own_sidecars_us"], 2)
        found[f"{batch} a call"] = row
    own_ms, peer_ms = asyncio.run(latency_ms(site, [owner.port, other.port]))
    found["publish_to_answer_ms"] = {"own": round(own_ms, 2), "added": round(peer_ms - own_ms, 2)}
    return found


def measured(site: Site, asked: argparse.Namespace) -> Figures:
    """All figures of one broker."""
    skip, found = asked.skip.split(","), dict[str, object]()
    seconds, count = asked.seconds, asked.sidecars
    site.start(1)
    if "costs" not in skip:
        site.start(1)
        found["costs"] = told("costs", costs(site, asked.rounds))
        site.sidecars.pop().stop()
    enough = int((seconds + WARM_S + 2) / WORK_S)
    asyncio.run(site.publish(enough * (count + 1)))
    one = found["one"] = told("one", shared(site, site.sidecars, seconds))
    site.start(count - 1)
    site.owner()
    ten = found["all"] = told("all", shared(site, site.sidecars, seconds))
    found["times"] = times(ten, one)
    if "bare" not in skip and site.part.adapter in BARE:
        for each in site.sidecars:
            each.stop()
        plain = [told("bare", bare(site, each, seconds)) for each in (1, count)]
        found |= {"bare_one": plain[0], "bare_all": plain[1], "bare_times": times(*plain[::-1])}
    return found


def told(what: str, figures: Figures) -> Figures:
    """The same, said at once, with the load."""
    figures["load_1min"] = machine()["load_1min_at_start"]
    sys.stderr.write(f"{what}: {json.dumps(figures)}\n")
    sys.stderr.flush()
    return figures


def times(many: Figures, one: Figures) -> float:
    """How often the rate of one."""
    return round(float(str(many["messages_per_s"])) / float(str(one["messages_per_s"])), 2)


def table(found: Figures) -> str:
    """What issue and documentation ask for, as lines of a table."""
    lines = [
        "| | one | all | times | busiest beside idlest | us | its own: one, all, times, spread |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, each in found.items():
        if not isinstance(each, dict) or "all" not in each:
            continue
        one, every = each["one"], each["all"]
        row = [name, one["messages_per_s"], every["messages_per_s"], each["times"]]
        row += [every["busiest_to_idlest"], every["sidecars_us"], ""]
        if "bare_all" in each:
            own, ten = each["bare_one"], each["bare_all"]
            rates = f"{own['messages_per_s']}, {ten['messages_per_s']}"
            row[-1] = f"{rates}, {each['bare_times']}, {ten['busiest_to_idlest']}"
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines) + "\n"


def run(name: str, folder: Path, asked: argparse.Namespace) -> Figures:
    """On a broker and a store of its own."""
    folder.mkdir()
    with ExitStack() as stack:
        part, store = made(name, folder), Valkey(folder)
        for each in (part, store):
            stack.callback(each.stop)
            each.start()
        topic = f"shared-{name}"
        part.create_topic(topic, 1)
        site = Site(part, store, folder, topic)
        stack.callback(site.stop)
        return {"load_1min": machine()["load_1min_at_start"], **measured(site, asked)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="local,kafka,pulsar,rocketmq")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    parser.add_argument("--sidecars", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="of the costs")
    parser.add_argument("--skip", default="", help="bare, costs")
    asked = parser.parse_args()
    folder = run_dir("bench-one-partition")
    found: Figures = {"machine": machine()}
    try:
        for name in asked.only.split(","):
            found[name] = run(name, folder / name, asked)
    finally:
        remove_run_dir(folder)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    sys.stderr.write(table(found))


if __name__ == "__main__":
    main()
