"""A real Kafka of one or several brokers that can be killed, frozen, cut off and restarted."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from ackd_torture.ports import free_port, give_back
from tests.support.certs import Certs, make_certs
from tests.support.kafka.config import KafkaOptions, SecurePorts, scram_users, server_properties
from tests.support.kafka.install import Installation, format_storage, install
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.proxy import Proxy
from tests.support.started import Started
from tests.support.wait import wait_until

START_TIMEOUT_S = 240.0
RENEW_S = 12.0
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


class KafkaNode:
    """One broker (and controller). Its data stays until the whole Kafka is stopped."""

    def __init__(self, number: int, process: Process, port: int, proxy: Proxy | None) -> None:
        self.number = number
        self.process = process
        self.port = port
        self.proxy = proxy
        self.secure: SecurePorts | None = None

    def start(self) -> None:
        """Start it again on its data and wait until it says that it serves."""
        self.process.start()
        self.process.wait_for_log("Kafka Server started", START_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def terminate(self) -> None:
        """An orderly stop: leadership moves away first where there is somewhere to move it."""
        self.process.terminate(60)

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.thaw()


class Kafka(Started):
    """A Kafka with its own data, made by `start`, gone after `stop`. Also a context manager."""

    def __init__(self, options: KafkaOptions | None = None) -> None:
        self.options = options or KafkaOptions()
        self.nodes: list[KafkaNode] = []
        self.certs: Certs | None = None
        self._folder: Path | None = None
        self._ports: list[int] = []
        self._admin: AdminClient | None = None
        self._renew_at_s = 0.0

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers that no proxy stands before."""
        return ",".join(f"{self.options.host}:{node.port}" for node in self.nodes)

    @property
    def proxied_bootstrap(self) -> str:
        """Bootstrap servers through the proxies; all traffic of such a client passes them."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)

    @property
    def proxies(self) -> list[Proxy]:
        """The proxies, one for each broker, if `proxied` was asked for."""
        return [node.proxy for node in self.nodes if node.proxy is not None]

    @property
    def node(self) -> KafkaNode:
        """The only broker; with several, the first."""
        return self.nodes[0]

    def secure_bootstrap(self, listener: str) -> str:
        """Bootstrap servers of `tls`, `sasl_tls` or `sasl_plain`."""
        ports = [getattr(node.secure, listener) for node in self.nodes if node.secure is not None]
        return ",".join(f"127.0.0.1:{port}" for port in ports)

    def start(self) -> Self:
        """Install on first use, format, start all brokers, wait until a client sees them all."""
        installation = install()
        self._folder = run_dir("kafka")
        try:
            self._lay_out(installation, self._folder)
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                list(pool.map(KafkaNode.start, self.nodes))
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill every broker and remove the data; nobody needs it flushed."""
        self._admin = None
        for node in self.nodes:
            node.kill()
            if node.proxy is not None:
                node.proxy.stop()
        give_back(*self._ports)
        self.nodes, self._ports = [], []
        if self._folder is not None:
            remove_run_dir(self._folder)
            self._folder = None

    def admin(self) -> AdminClient:
        """An admin client on the plain listener, shared by all callers."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until all brokers are registered, as seen by a client."""
        wait_until(
            lambda: len(self.admin().list_topics(timeout=5).brokers) == len(self.nodes),
            f"{len(self.nodes)} brokers in the metadata",
            timeout_s=timeout_s,
            interval_s=0.1,
            ignoring=(KafkaException,),
        )

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and wait until each partition has a leader. Returns the name."""
        copies = min(len(self.nodes), 3)
        topic = NewTopic(name, partitions, copies, config=dict(config or {}))
        self.admin().create_topics([topic])[name].result(30)
        self.wait_topic(name, partitions)
        return name

    def wait_topic(self, name: str, partitions: int) -> None:
        """Wait until a topic has this many partitions, each with a leader that knows that it is."""

        def led() -> bool:
            found = self.admin().list_topics(name, timeout=5).topics[name].partitions
            return len(found) == partitions and all(each.leader > 0 for each in found.values())

        def served() -> bool:
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            ends = {TopicPartition(name, each): latest for each in range(partitions)}
            for asked in self.admin().list_offsets(ends, request_timeout=5).values():
                asked.result(10)
            return True

        def there() -> bool:
            if time.monotonic() > self._renew_at_s:
                # One that knew an earlier topic of this name was seen to ask for that one for ever.
                self._admin, self._renew_at_s = None, time.monotonic() + RENEW_S
            return led() and served()

        self._renew_at_s = time.monotonic() + RENEW_S
        ignoring = (KafkaException, KeyError, TimeoutError)
        wait_until(there, f"leaders of {name} at work", timeout_s=60, ignoring=ignoring)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics and wait for the broker's answer."""
        for future in self.admin().delete_topics(list(names)).values():
            future.result(30)

    def allow(self, user: str, *, topics: str = "*", groups: str = "*") -> None:
        """Grant a SASL or certificate user everything on these topics and groups (`*` = all)."""
        resources = ((ResourceType.TOPIC, topics), (ResourceType.GROUP, groups))
        rules = [
            AclBinding(
                kind,
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for kind, name in resources
        ]
        for future in self.admin().create_acls(rules).values():
            future.result(30)

    def leader(self, topic: str, partition: int) -> KafkaNode:
        """The broker that leads a partition now."""
        found = self.admin().list_topics(topic, timeout=5).topics[topic].partitions[partition]
        return next(node for node in self.nodes if node.number == found.leader)

    def _lay_out(self, installation: Installation, folder: Path) -> None:
        """Choose ports, write each broker's configuration, format its storage."""
        numbers = range(1, self.options.nodes + 1)
        ports = {number: self._port() for number in numbers}
        controller_ports = {number: self._port() for number in numbers}
        if self.options.security:
            self.certs = make_certs(folder / "certs")
        for number in numbers:
            proxy = self._proxy() if self.options.proxied else None
            secure = self._secure_ports() if self.options.security else None
            home = folder / str(number)
            home.mkdir()
            properties = home / "server.properties"
            properties.write_text(
                server_properties(
                    number,
                    ports,
                    controller_ports,
                    home / "data",
                    self.options,
                    proxied=None if proxy is None else (proxy.target_port, proxy.port),
                    secure=(secure, self.certs) if secure and self.certs else None,
                )
            )
            archive = f"-XX:SharedArchiveFile={installation.archive}"
            extra = [archive]
            if self.options.issuer:
                extra.append(f"-D{ALLOWED_URLS}={self.options.issuer}/jwks")
            argv = installation.java(heap_mb=self.options.heap_mb, extra=extra)
            process = Process([*argv, "kafka.Kafka", properties], log_path=home / "broker.log")
            node = KafkaNode(number, process, ports[number], proxy)
            node.secure = secure
            self.nodes.append(node)
        users = scram_users() if self.options.security else []
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            formats = [
                pool.submit(format_storage, installation, properties, users)
                for properties in folder.glob("*/server.properties")
            ]
        for each in formats:
            each.result()

    def _port(self) -> int:
        port = free_port()
        self._ports.append(port)
        return port

    def _proxy(self) -> Proxy:
        proxy = Proxy(self._port())
        proxy.start()
        return proxy

    def _secure_ports(self) -> SecurePorts:
        return SecurePorts(tls=self._port(), sasl_tls=self._port(), sasl_plain=self._port())
