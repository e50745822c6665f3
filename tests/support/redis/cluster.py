"""A Redis Cluster of three primaries, with or without a replica for each."""

from pathlib import Path

from tests.support.redis.group import RedisGroup
from tests.support.redis.server import RedisServer
from tests.support.wait import wait_until

SLOTS = 16_384
PRIMARIES = 3


class RedisCluster(RedisGroup):
    """`servers[:3]` are the primaries at the start, the rest their replicas in the same order."""

    def __init__(self, binary: Path, *, replicas: bool = False) -> None:
        super().__init__(binary)
        self._bus_ports: list[int] = []
        self._replicas = replicas

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the nodes listen."""
        return [("127.0.0.1", server.port) for server in self.servers]

    @property
    def url(self) -> str:
        """URL of the first node; a cluster client finds the others."""
        return self.servers[0].url

    def wait_ok(self, timeout_s: float = 90.0) -> None:
        """Wait until each running node says that all slots are served; replicas are in step."""

        def served() -> bool:
            running = [n for n, server in enumerate(self.servers) if server.process.running]
            return all(
                "cluster_state:ok" in str(self._cluster(n, "INFO")) for n in running
            ) and all(
                self.servers[n].info("replication").get("master_link_status", "up") == "up"
                for n in running
            )

        wait_until(served, "cluster_state:ok on every node", timeout_s=timeout_s, interval_s=0.1)

    def owner(self, key: str) -> RedisServer:
        """The server that serves this key now."""
        alive = next(n for n, server in enumerate(self.servers) if server.process.running)
        slot = int(str(self._cluster(alive, "KEYSLOT", key)))
        with self.servers[alive].client() as client:
            for first, last, primary, *_ in client.execute_command("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    port = int(primary[1])
                    return next(server for server in self.servers if server.port == port)
        raise AssertionError(f"nobody serves slot {slot}")

    def _build(self) -> None:
        """Start the nodes, join them, give out the slots, wait until all agree."""
        self._bus_ports = []
        for _ in range(PRIMARIES * (2 if self._replicas else 1)):
            self._node()
        self._join()
        for number in range(PRIMARIES):
            first = SLOTS * number // PRIMARIES
            last = SLOTS * (number + 1) // PRIMARIES
            self._cluster(number, "ADDSLOTS", *range(first, last))
        for number in range(PRIMARIES, len(self.servers)):
            self._follow(number, number - PRIMARIES)
        self.wait_ok()

    def _node(self) -> None:
        bus = self._port()
        config = {
            "cluster-enabled": "yes",
            "cluster-port": str(bus),
            # Without replicas nobody is to be taken for dead, however busy the machine is.
            "cluster-node-timeout": "1500" if self._replicas else "60000",
            "cluster-config-file": "nodes.conf",
        }
        self._server(config)
        self._bus_ports.append(bus)

    def _join(self) -> None:
        for number in range(1, len(self.servers)):
            port, bus = self.servers[number].port, self._bus_ports[number]
            self._cluster(0, "MEET", "127.0.0.1", port, bus)
        wait_until(
            lambda: all(self._known(n) == len(self.servers) for n in range(len(self.servers))),
            "the nodes know each other",
            timeout_s=60,
        )

    def _known(self, number: int) -> int:
        nodes = str(self._cluster(number, "NODES")).splitlines()
        return sum("handshake" not in line for line in nodes)

    def _follow(self, replica: int, primary: int) -> None:
        name = self._cluster(primary, "MYID")
        self._cluster(replica, "REPLICATE", name)

    def _cluster(self, number: int, *words: object) -> object:
        with self.servers[number].client() as client:
            client.response_callbacks.clear()
            return client.execute_command("CLUSTER", *words)
