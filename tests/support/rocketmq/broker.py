"""A real RocketMQ (name server, broker, gRPC proxy) that can be killed, frozen and restarted."""

import itertools
import os
import shutil
import string
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ackd_torture.ports import free_port, give_back, listens
from tests.support.certs import Certs, make_certs
from tests.support.faketime import Clock
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.rocketmq.admin import Admin
from tests.support.rocketmq.config import (
    ACCESS_KEY,
    SECRET_KEY,
    BrokerAt,
    BrokerPorts,
    Ports,
    RocketMQOptions,
    write_broker,
    write_files,
)
from tests.support.rocketmq.install import install
from tests.support.started import Started
from tests.support.wait import wait_until

START_TIMEOUT_S = 120.0
_COPIES = itertools.count(1)


@dataclass
class Node:
    """A broker and its process."""

    at: BrokerAt
    process: Process

    @property
    def address(self) -> str:
        """Where the administrator reaches it."""
        return f"127.0.0.1:{self.at.ports.own}"


class RocketMQ(Started):
    """A RocketMQ with data of its own, made by `start`, gone after `stop`.

    Without `options.cluster`, `proxy` is broker and proxy in one process, and `broker` the same.
    """

    def __init__(self, options: RocketMQOptions | None = None) -> None:
        self.options = options or RocketMQOptions()
        self.certs: Certs | None = None
        self._folder: Path | None = None
        self._ports: Ports | None = None
        self._names: Process | None = None
        self.nodes: list[Node] = []
        self._brokers = itertools.count()
        self._proxy: Process | None = None
        self._admin: Admin | None = None
        self._clock: Clock | None = None

    @property
    def endpoints(self) -> str:
        """Where clients connect to."""
        return f"127.0.0.1:{self.ports.grpc}"

    @property
    def ports(self) -> Ports:
        """Its ports."""
        assert self._ports is not None, "not started"
        return self._ports

    @property
    def admin(self) -> Admin:
        """Makes topics and groups."""
        assert self._admin is not None, "not started"
        return self._admin

    @property
    def broker(self) -> Process:
        """The process that holds the messages, the first one if there are several."""
        return self.nodes[0].process

    @property
    def proxy(self) -> Process:
        """The process that clients talk to."""
        assert self._proxy is not None, "not started"
        return self._proxy

    @property
    def clock(self) -> Clock:
        """That of the brokers, with `options.clock`."""
        assert self._clock is not None, "not asked for"
        return self._clock

    @property
    def names_of_brokers(self) -> set[str]:
        """A replica has the name of its master."""
        return {node.at.name for node in self.nodes}

    @property
    def names(self) -> Process:
        """The name server."""
        assert self._names is not None, "not started"
        return self._names

    def start(self) -> Self:
        """Install on first use, start all, wait until a broker is known and the proxy listens."""
        lib = install()
        self._folder = run_dir("rocketmq")
        self._ports = Ports(*(free_port() for _ in range(4)))
        self.certs = make_certs(self._folder / "certs")
        write_files(self._folder, self._ports, self.options, self.certs)
        self._clock = Clock(self._folder) if self.options.clock else None
        try:
            self._make(lib, self._folder)
            for process in self._processes():
                if process is self._proxy and self.options.cluster:
                    # It ends when it starts before the brokers are registered.
                    self._wait_registered()
                process.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all and remove the data."""
        if self._admin is not None:
            self._admin.stop()
            self._admin = None
        for process in self._processes():
            process.kill()
        self._names = self._proxy = None
        for node in self.nodes:
            give_back(node.at.ports.own, node.at.ports.ha)
        self.nodes = []
        if self._ports is not None:
            p = self._ports
            give_back(p.names, p.grpc, p.remoting, p.controller)
            self._ports = None
        if self._folder is not None:
            remove_run_dir(self._folder)
            self._folder = None

    def restart(self, process: Process) -> None:
        """Start a killed process again on its data and wait until clients are served, if the others
        run.
        """
        process.start()
        if all(each.running for each in self._processes()):
            self.wait_ready()

    def master(self, name: str) -> Node:
        """The one that the name server knows as master of this name; it may be dead."""
        port = int(self.admin.order(f"master {name}").rpartition(":")[2])
        return next(node for node in self.nodes if node.at.ports.own == port)

    def in_sync(self, name: str) -> int:
        """How many brokers of this name have all messages, as the controller knows."""
        return int(self.admin.order(f"synced 127.0.0.1:{self.ports.controller} {name}"))

    def add_broker(self) -> Node:
        """One more, while the others run. It has no topics yet."""
        node = self._new_broker(install(), self._home)
        node.process.start()
        self._wait_registered()
        self.admin.at = [node.address for node in self.nodes if not node.at.id]
        return node

    def remove_broker(self, node: Node) -> None:
        """Kill it for good."""
        node.process.kill()
        self.nodes.remove(node)
        give_back(node.at.ports.own, node.at.ports.ha)
        self.admin.at = [node.address for node in self.nodes if not node.at.id]
        self._wait_registered()

    def copy_store(self) -> Path:
        """A copy of the broker's data as it is now; it is frozen meanwhile."""
        target = self._home / f"store-{next(_COPIES)}"
        self.broker.freeze()
        try:
            _copy(self._home / "store", target)
        finally:
            self.broker.thaw()
        return target

    def set_back(self, copy: Path) -> None:
        """Kill the broker and start it on a copy of its data, as after a power loss that took what
        it had not written down.
        """
        self.broker.kill()
        shutil.rmtree(self._home / "store")
        _copy(copy, self._home / "store")
        self.restart(self.broker)

    def complaints(self, lines: int = 30) -> str:
        """What the broker logged last as wrong."""
        logs = sorted(self._home.glob("*/logs/rocketmqlogs/store*.log"))
        found = [line for each in logs for line in each.read_text(errors="replace").splitlines()]
        return "\n".join([line for line in found if " WARN " in line or " ERROR " in line][-lines:])

    def wait_ready(self) -> None:
        """Wait until the broker is registered and the proxy listens."""
        self._wait_registered()
        wait_until(
            lambda: self._alive() and listens(self.ports.grpc),
            "the proxy listens",
            timeout_s=START_TIMEOUT_S,
            interval_s=0.05,
        )

    def _wait_registered(self) -> None:
        if self._admin is None:
            wait_until(lambda: listens(self.ports.names), "names", timeout_s=START_TIMEOUT_S)
            self._admin = Admin(
                install(),
                self._home,
                f"127.0.0.1:{self.ports.names}",
                [node.address for node in self.nodes if not node.at.id],
                (ACCESS_KEY, SECRET_KEY) if self.options.access_keys else (),
            )
        admin = self._admin
        count = len(self.names_of_brokers)
        wait_until(
            lambda: self._alive() and self._all_listen() and admin.brokers() == count,
            "registered brokers",
            timeout_s=START_TIMEOUT_S,
            interval_s=0.1,
        )

    def _all_listen(self) -> bool:
        return all(listens(node.at.ports.own) for node in self.nodes if node.process.running)

    def _alive(self) -> bool:
        for process in self._processes():
            if process.log_path.exists() and not process.running:
                raise AssertionError(f"ended early:\n{process.log()[-4000:]}")
        return True

    @property
    def _home(self) -> Path:
        assert self._folder is not None, "not started"
        return self._folder

    def _processes(self) -> list[Process]:
        found: list[Process] = []
        for each in (self._names, *(node.process for node in self.nodes), self._proxy):
            if each is not None and each not in found:
                found.append(each)
        return found

    def _make(self, lib: Path, home: Path) -> None:
        conf = home / "conf"
        names = f"127.0.0.1:{self.ports.names}"
        self._names = self._java(
            lib, home, "namesrv", 64, "namesrv.NamesrvStartup", "-c", conf / "namesrv.conf"
        )
        proxied = ("-pc", conf / "rmq-proxy.json", "-n", names)
        if self.options.cluster:
            for _ in range(self.options.brokers):
                self._new_broker(lib, home)
            if self.options.replica:
                self._new_broker(lib, home, of=self.nodes[0].at.name)
            self._proxy = self._java(
                lib, home, "proxy", 256, "proxy.ProxyStartup", "-pm", "cluster", *proxied
            )
        else:
            at = BrokerAt("broker-a", BrokerPorts(free_port(), free_port()), home / "store")
            config = ("-bc", write_broker(home, at, self.ports, self.options))
            self._proxy = self._java(
                lib, home, "proxy", 512, "proxy.ProxyStartup", "-pm", "local", *config, *proxied
            )
            self.nodes = [Node(at, self._proxy)]

    def _new_broker(self, lib: Path, home: Path, of: str = "") -> Node:
        """`of`: it is the replica of this one."""
        ports = BrokerPorts(free_port(), free_port())
        number = next(self._brokers)
        name = of or f"broker-{string.ascii_lowercase[number]}"
        store = home / (f"store-of-{number}" if number else "store")
        at = BrokerAt(name, ports, store, 1 if of else 0)
        config = write_broker(home, at, self.ports, self.options)
        process = self._java(lib, home, at.called, 384, "broker.BrokerStartup", "-c", config)
        node = Node(at, process)
        self.nodes.append(node)
        return node

    def _java(
        self, lib: Path, home: Path, name: str, heap_mb: int, main: str, *more: str | Path
    ) -> Process:
        logs = home / name
        logs.mkdir()
        argv = [
            "java",
            f"-Duser.home={logs}",
            "-XX:+UseSerialGC",
            f"-Xms{heap_mb}m",
            f"-Xmx{heap_mb}m",
            # Each storing thread takes 4.26 MB; with less, unacked messages never come back.
            "-XX:MaxDirectMemorySize=1g",
            "-cp",
            f"{home / 'conf'}:{lib}/*",
            f"org.apache.rocketmq.{main}",
            *more,
        ]
        env = {**os.environ, "ROCKETMQ_HOME": str(home), "RMQ_PROXY_HOME": str(home)}
        if self._clock is not None and main.startswith("broker."):
            env |= self._clock.environment
        return Process(argv, log_path=home / f"{name}.log", env=env, cwd=home)


def _copy(source: Path, target: Path) -> None:
    """A folder; its files are large and nearly empty."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)
