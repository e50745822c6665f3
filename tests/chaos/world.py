"""A small deployment for fault tests: sidecars and a store on a given broker, and plain clients.

Everything here is black-box: `ackd serve` processes, HTTP, and the broker's own client.
"""

import contextlib
import http.client
import itertools
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Producer

from ackd_torture.child import BrokerPart
from ackd_torture.parts import Sidecar, SidecarPlan, Valkey, Value
from ackd_torture.run import traced_in
from tests.support.kafka import Kafka

SETTLED_S = 20.0
_numbers = itertools.count(1)


@dataclass
class KafkaAt:
    """A Kafka that a fixture owns, as a broker part: `proxied` goes through its proxy."""

    kafka: Kafka
    proxied: bool = False
    adapter: str = "kafka"
    name: str = "kafka"

    def options(self) -> dict[str, str | int]:
        """How to connect."""
        way = self.kafka.proxied_bootstrap if self.proxied else self.kafka.bootstrap
        return {"bootstrap_servers": way}

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic."""
        self.kafka.create_topic(name, partitions=partitions)

    def start(self) -> None:
        """Start it again after a kill; nothing when it runs."""
        if not self.kafka.node.process.running:
            self.kafka.node.start()
            self.kafka.wait_ready()

    def kill(self) -> None:
        """SIGKILL."""
        self.kafka.node.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.kafka.node.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.kafka.node.thaw()

    def stop(self) -> None:
        """It belongs to the fixture."""


@dataclass
class World:
    """Sidecars on one broker and one store. Use `world(...)`, which stops them all.

    `drain_ms` is short, as tests leave leases open on purpose, which nobody settles at the end.
    """

    broker: BrokerPart
    folder: Path
    topic: str
    store: Valkey | None
    subscription: Mapping[str, Value] = field(default_factory=dict)
    store_settings: Mapping[str, Value] = field(default_factory=dict)
    store_url: str = ""
    command: tuple[str, ...] = ()
    drain_ms: int = 500
    sections: dict[str, Mapping[str, Value]] = field(default_factory=dict)
    sidecars: dict[str, Sidecar] = field(default_factory=dict)

    @property
    def traces(self) -> Path:
        """Where sidecars write traces, if they do."""
        return self.folder / "traces"

    def sidecar(self, name: str = "s1", *, start: bool = True) -> Sidecar:
        """The sidecar of this name; made (and started) when it is asked for first."""
        if name not in self.sidecars:
            url = self.store_url or ("embedded" if self.store is None else self.store.url)
            plan = SidecarPlan(
                broker=self.broker,
                store_url=url,
                topic=self.topic,
                sub="orders",
                group=f"{self.topic}-group",
                subscription=self.subscription,
                store=self.store_settings,
                server={"drain_ms": self.drain_ms},
                sections=self.sections,
            )
            if self.command:
                plan = replace(plan, command=self.command)
            self.sidecars[name] = Sidecar(name, plan, self.folder)
            if start:
                self.sidecars[name].start()
        return self.sidecars[name]


@contextlib.contextmanager
def world(
    broker: BrokerPart,
    folder: Path,
    *,
    partitions: int = 1,
    embedded: bool = False,
    store_settings: Mapping[str, Value] | None = None,
    command: tuple[str, ...] = (),
    sections: Mapping[str, Mapping[str, Value]] | None = None,
    traces: bool = False,
    **subscription: Value,
) -> Iterator[World]:
    """A topic of its own, and a store of its own unless `embedded`. `traces`: all sidecars write
    theirs into `World.traces`; what is complete when the world has ended.
    """
    topic = f"chaos-{next(_numbers)}-{time.time_ns() % 1_000_000_000}"
    broker.create_topic(topic, partitions)
    store = None if embedded else Valkey(folder)
    found = World(broker, folder, topic, store, subscription, store_settings or {}, command=command)
    found.sections = dict(sections or {})
    if traces:
        found.sections["traces"] = traced_in(found.traces)
    try:
        if store is not None:
            store.start()
        yield found
    finally:
        Http.close_all()
        with ThreadPoolExecutor(max(len(found.sidecars), 1)) as pool:
            list(pool.map(Sidecar.stop, found.sidecars.values()))
        if store is not None:
            store.stop()


class Http:
    """A plain client with one connection, made again when it breaks; `world` closes them all."""

    _all: ClassVar[list["Http"]] = []

    def __init__(self, sidecar: Sidecar, timeout_s: float = 60.0) -> None:
        self.sidecar = sidecar
        self.timeout_s = timeout_s
        self.headers: dict[str, str] = {}
        self._connection: http.client.HTTPConnection | None = None
        self._all.append(self)

    @classmethod
    def close_all(cls) -> None:
        """Close every client's connection."""
        while cls._all:
            cls._all.pop().close()

    def post(self, path: str, body: Mapping[str, object]) -> tuple[int, Any]:
        """(status, decoded answer); status 0 when there was no answer."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    "127.0.0.1", self.sidecar.port, timeout=self.timeout_s
                )
            kind = {"content-type": "application/json"}
            self._connection.request("POST", path, json.dumps(body).encode(), kind)
            answer = self._connection.getresponse()
            raw = answer.read()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, json.loads(raw) if raw else None
        except (OSError, http.client.HTTPException):
            self.close()
            return 0, None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def receive(self, most: int = 1000, wait_ms: int = 500, **more: object) -> list[dict[str, Any]]:
        """Messages; an empty list also when there was no answer."""
        body = {"max": most, "wait_ms": wait_ms, **more}
        status, answer = self.post("/v1/subscriptions/orders/receive", body)
        return list(answer["messages"]) if status == 200 else []

    def publish(self, topic: str, count: int, first: int = 0) -> None:
        """Messages with their number as `msg`, stored in their order."""
        for at in range(first, first + count, 500):
            numbers = range(at, min(at + 500, first + count))
            messages = [{"json": {"msg": f"m{number}"}} for number in numbers]
            status, answer = self.post(f"/v1/topics/{topic}/messages:batch", {"messages": messages})
            assert status in (200, 201), answer

    def settle(self, leases: Sequence[str], do: str = "ack", **more: object) -> list[str]:
        """The status of each; at most 1000 at a time go over the wire.

        A 503 is asked again, as applications do: a sidecar that has just started, or whose store
        was slow for a moment, may say so.
        """
        found: list[str] = []
        for at in range(0, len(leases), 1000):
            items = [{"lease": lease, "do": do, **more} for lease in leases[at : at + 1000]]
            found += decided([self], items, SETTLED_S, again=(503,))[0]
        return found

    def receive_until(
        self, enough: Callable[[list[dict[str, Any]]], bool], within_s: float, **more: object
    ) -> list[dict[str, Any]]:
        """Receive until what came is enough; AssertionError when that takes too long."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + within_s
        while not enough(found):
            assert time.monotonic() < end, self._said(f"{len(found)} messages in {within_s} s")
            found += self.receive(**more)  # type: ignore[arg-type]  # options by name
        return found

    def _said(self, what: str) -> str:
        """What is wrong, with what the sidecar has to say about it."""
        sidecar = self.sidecar
        life = "runs" if sidecar.running else "has ended"
        return f"only {what}; {sidecar.name} {life}, ready: {ready(sidecar)}\n{sidecar.tail()}"

    def quiet(self, for_s: float) -> list[dict[str, Any]]:
        """What comes while nothing should: an empty list is good news."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + for_s
        while time.monotonic() < end:
            found += self.receive(wait_ms=300)
            if not found:
                time.sleep(0.01)  # an answer without waiting must not make this a busy loop
        return found


def decided(
    clients: Sequence[Http],
    items: Sequence[Mapping[str, object]],
    within_s: float,
    *,
    again: Collection[int] = (0, 503),
) -> tuple[list[str], int]:
    """What a settle is told for each item, and how often it was asked before in vain.

    It is asked at each client in turn while the status is one of `again`: 503, or 0, no answer.
    After a 0 it may have counted already.
    """
    end = time.monotonic() + within_s
    for tries, client in enumerate(itertools.cycle(clients)):
        status, answer = client.post("/v1/settle", {"items": items})
        if status == 200:
            return [str(result["status"]) for result in answer["results"]], tries
        assert status in again, (status, answer)
        assert time.monotonic() < end, f"nobody decides it within {within_s} s: {answer}"
        time.sleep(0.02)
    raise AssertionError("there is nobody to ask")


def long_job(client: Http, lease_ms: int, times: int) -> None:
    """A lease of the only message, extended so often, outlives itself by far: delivered once (I3).

    As a job that renders a video for five minutes, with a lease of 10 s. ACKD_LONG_JOB_MS makes it
    as long as that: each extension waits a sixth of the lease.
    """
    lease_ms = int(os.environ.get("ACKD_LONG_JOB_MS", lease_ms))
    [message] = client.receive_until(bool, 90, most=1, lease_ms=lease_ms)
    began = time.monotonic()
    for _ in range(times):
        assert client.quiet(lease_ms / 6000) == []
        assert client.settle([message["lease"]], "extend", lease_ms=lease_ms) == ["extended"]
    assert time.monotonic() - began > times * lease_ms / 6000
    assert client.settle([message["lease"]]) == ["acked"]
    assert client.quiet(lease_ms / 1000 + 1) == []


def ready(sidecar: Sidecar) -> str:
    """What `/readyz` says, reasons included."""
    try:
        with urllib.request.urlopen(f"{sidecar.admin_url}/readyz", timeout=2.0) as answer:  # noqa: S310
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError as error:
        return str(error)


def produce(
    kafka: Kafka, topic: str, count: int, *, first: int = 0, pad: int = 0, partitions: int = 0
) -> None:
    """Put messages onto a topic with the broker's own client; all are confirmed. `partitions`: they
    go to these in turn.
    """
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,
        }
    )

    def confirmed(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for number in range(first, first + count):
        value = json.dumps({"msg": f"m{number}", "pad": "x" * pad}).encode()
        to = number % partitions if partitions else -1
        producer.produce(topic, value, partition=to, on_delivery=confirmed)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]


def offsets(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Offsets of what came, from the ids `topic/partition/offset`."""
    return [int(each["id"].rpartition("/")[2]) for each in messages]
