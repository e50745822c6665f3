"""Several servers that are started together and stopped together."""

from abc import abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from ackd_torture.ports import free_port, give_back
from tests.support.redis.server import RedisOptions, RedisServer
from tests.support.started import Started


class RedisGroup(Started):
    """`servers` in the order in which they were started."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary
        self.servers: list[RedisServer] = []
        self._stack = ExitStack()

    def start(self) -> Self:
        """Start them all and wait until they are in step."""
        try:
            self._build()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill everything and remove the data."""
        self._stack.close()
        self.servers = []

    @abstractmethod
    def _build(self) -> None:
        """Start the parts; what has to be undone goes on the stack."""

    def _server(self, config: dict[str, str]) -> RedisServer:
        # Without a delay the first replication starts at once and not after five seconds.
        config = {"repl-diskless-sync-delay": "0", **config}
        server = RedisServer(RedisOptions(binary=self.binary, config=config))
        self._stack.callback(server.stop)
        server.start()
        self.servers.append(server)
        return server

    def _port(self) -> int:
        port = free_port()
        self._stack.callback(give_back, port)
        return port
