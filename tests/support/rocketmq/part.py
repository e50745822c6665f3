"""The tests' RocketMQ as a part of a deployment for fault tests."""

from ackd_torture.ports import listens
from tests.support.proc import Process
from tests.support.rocketmq.broker import START_TIMEOUT_S, RocketMQ
from tests.support.wait import wait_until

RETRIES = 1_000_000
"""Faults on purpose must not make the broker give up."""


class RocketMQAt:
    """A RocketMQ that a fixture owns. `group` None: as `tests.chaos.world` calls it. `fifo`: topics
    and group keep an order.
    """

    adapter = "rocketmq"
    name = "rocketmq"
    positions = False

    def __init__(
        self,
        rocketmq: RocketMQ,
        hold_ms: int = 4_000,
        group: str | None = None,
        *,
        fifo: bool = False,
    ) -> None:
        self.rocketmq = rocketmq
        self.hold_ms = hold_ms
        self.group = group
        self.fifo = fifo

    def options(self) -> dict[str, str | int]:
        """How to connect. A broker or proxy that has just begun takes long for its first answers:
        what a poll brings that is broken off comes as a copy, and nobody knows what became of a
        publish that is.
        """
        return {
            "endpoints": self.rocketmq.endpoints,
            "name_servers": f"127.0.0.1:{self.rocketmq.ports.names}",
            "invisible_duration_ms": self.hold_ms,
            "poll_ms": 1_000,
            "request_timeout_ms": 10_000,
        }

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic, and the group that will read it."""
        admin = self.rocketmq.admin
        admin.topic(name, partitions, "FIFO" if self.fifo else "NORMAL")
        admin.group(self.group or f"{name}-group", orderly=self.fifo, retries=RETRIES)

    def start(self) -> None:
        """Start it again after a kill; nothing when it runs."""
        if not self.rocketmq.proxy.running:
            self.rocketmq.restart(self.rocketmq.proxy)

    def kill(self) -> None:
        """SIGKILL."""
        self.rocketmq.proxy.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.rocketmq.proxy.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.rocketmq.proxy.thaw()

    def stop(self) -> None:
        """It belongs to the fixture."""


class RocketMQPart(RocketMQAt):
    """One of its own for `ackd torture --start rocketmq --parts tests.support.parts`."""

    def __init__(self) -> None:
        super().__init__(RocketMQ(), group="orders")
        self._there = False

    def start(self) -> None:
        """Start it, or start it again."""
        if self._there:
            super().start()
        else:
            self.rocketmq.start()
            self._there = True

    def stop(self) -> None:
        """Kill it and remove its data."""
        if self._there:
            self.rocketmq.stop()
            self._there = False


class ProcessPart:
    """One process of a RocketMQ of several, which may be killed while others are dead. `port`: it
    serves when it listens there.
    """

    def __init__(self, name: str, process: Process, port: int) -> None:
        self.name = name
        self._process = process
        self._port = port

    def start(self) -> None:
        """Start it again. A proxy ends again while it finds no broker."""

        def serves() -> bool:
            if not self._process.running:
                self._process.start()
            return listens(self._port)

        wait_until(serves, f"{self.name} listens", timeout_s=START_TIMEOUT_S, interval_s=0.1)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.thaw()

    def stop(self) -> None:
        """It belongs to the fixture."""


class RocketMQClusterAt(RocketMQAt):
    """A RocketMQ of several processes, each a part of its own."""

    def start(self) -> None:
        """It runs already."""

    def parts(self) -> list[ProcessPart]:
        """All that may be broken."""
        it = self.rocketmq
        found = [ProcessPart(node.at.called, node.process, node.at.ports.own) for node in it.nodes]
        found.append(ProcessPart("proxy", it.proxy, it.ports.grpc))
        return [*found, ProcessPart("names", it.names, it.ports.names)]
