"""A primary, its replicas and three Sentinels that fail over within two seconds, if told to."""

from pathlib import Path

import redis

from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.redis.group import RedisGroup
from tests.support.redis.server import RedisServer, connect
from tests.support.wait import wait_until

SERVICE = "ackd-primary"
SENTINELS = 3


class RedisSentinel(RedisGroup):
    """The whole set-up under the service name `SERVICE`, with `replicas` replicas.

    `steady`: nobody is to fail over, also not when a busy machine keeps a server from answering.
    """

    def __init__(self, binary: Path, *, replicas: int = 1, steady: bool = False) -> None:
        super().__init__(binary)
        self.sentinel_ports: list[int] = []
        self.sentinels: list[Process] = []
        self._replicas = replicas
        self._down_after_ms = 120_000 if steady else 1_000

    @property
    def sentinel_addresses(self) -> list[tuple[str, int]]:
        """Where the Sentinels listen."""
        return [("127.0.0.1", port) for port in self.sentinel_ports]

    def primary(self) -> RedisServer:
        """The server that the first Sentinel names as primary now."""
        with connect(self.sentinel_ports[0]) as client:
            reply = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(server for server in self.servers if server.port == int(reply[1]))

    def wait_failover(self, old: RedisServer, timeout_s: float = 90.0) -> RedisServer:
        """Wait until all Sentinels agree on another primary and it accepts writes; return it."""

        def agreed() -> RedisServer | None:
            named = set()
            for port in self.sentinel_ports:
                with connect(port) as client:
                    reply = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                named.add(int(reply[1]))
            if len(named) > 1 or old.port in named:
                return None
            new = next(server for server in self.servers if server.port in named)
            return new if new.info("replication")["role"] == "master" else None

        found = wait_until(agreed, "a new primary", timeout_s=timeout_s, interval_s=0.1)
        if found is None:
            raise AssertionError("wait_until answers only when there is one")
        return found

    def wait_settled(self, timeout_s: float = 90.0) -> None:
        """Wait until every Sentinel sees all the others, and every replica is in step."""

        def settled() -> bool:
            for port in self.sentinel_ports:
                with connect(port) as client:
                    flat = client.execute_command("SENTINEL", "MASTER", SERVICE)
                state = dict(zip(flat[::2], flat[1::2], strict=True))
                others = int(state["num-other-sentinels"])
                if others != SENTINELS - 1 or int(state["num-slaves"]) != self._replicas:
                    return False
            replicas = [server for server in self.servers if server is not self.primary()]
            return all(
                server.info("replication").get("master_link_status") == "up" for server in replicas
            )

        wait_until(
            settled,
            "Sentinels and replicas in step",
            timeout_s=timeout_s,
            interval_s=0.1,
            ignoring=(redis.ConnectionError,),  # a primary that was replaced drops its clients
        )

    def _build(self) -> None:
        """Start everything and wait until each Sentinel knows all the others and all replicas."""
        self.sentinels, self.sentinel_ports = [], []
        primary = self._server({})
        for _ in range(self._replicas):
            self._server({"replicaof": f"127.0.0.1 {primary.port}"})
        for _ in range(SENTINELS):
            self._sentinel(primary.port)
        self.wait_settled()

    def _sentinel(self, primary_port: int) -> None:
        folder = run_dir("sentinel")
        self._stack.callback(remove_run_dir, folder)
        port = self._port()
        (folder / "sentinel.conf").write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary_port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}\n"
            f"sentinel failover-timeout {SERVICE} 4000\n"
        )
        argv: list[str | Path] = [self.binary, folder / "sentinel.conf", "--sentinel"]
        process = Process(argv, log_path=folder / "sentinel.log")
        self._stack.callback(process.kill)
        process.start()
        self.sentinels.append(process)
        self.sentinel_ports.append(port)
        wait_until(
            lambda: _answers(port), "the Sentinel answers", ignoring=(redis.ConnectionError,)
        )


def _answers(port: int) -> bool:
    with connect(port) as client:
        return bool(client.ping())
