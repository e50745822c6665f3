"""One Redis or Valkey server that can be killed, frozen, emptied and set back in time."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ackd_torture.ports import free_port, give_back
from tests.support.certs import Certs, make_certs
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.started import Started
from tests.support.wait import wait_until

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
_NOT_YET = (redis.ConnectionError, redis.TimeoutError)


@dataclass(frozen=True)
class RedisOptions:
    """What kind of server.

    `tls`: only a TLS port, client certificates looked at if given. `users`: lines of an ACL file
    such as `user ackd on >secret ~ackd:* +@all`; with any, the default user is off. `fsync` None
    means no append-only file. `config` comes last and wins.
    """

    binary: Path
    tls: bool = False
    users: Sequence[str] = ()
    fsync: str | None = "everysec"
    unix_socket: bool = False
    config: Mapping[str, str] = field(default_factory=dict)


def connect(
    port: int,
    username: str | None = None,
    password: str | None = None,
    certs: Certs | None = None,
) -> "redis.Redis":
    """A synchronous client of a server or a Sentinel, whose calls are never repeated by itself."""
    return redis.Redis(
        host="127.0.0.1",
        port=port,
        socket_timeout=20,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        username=username,
        password=password,
        ssl=certs is not None,
        ssl_ca_certs=None if certs is None else str(certs.ca),
    )


class RedisServer(Started):
    """A server with its own data, made by `start`, gone after `stop`. Also a context manager."""

    def __init__(self, options: RedisOptions) -> None:
        self.options = options
        self.port = free_port()
        self.certs: Certs | None = None
        self._folder = run_dir("redis")
        self._data = self._folder / "data"
        self.process = Process(
            [options.binary, self._folder / "server.conf"], log_path=self._folder / "server.log"
        )

    @property
    def url(self) -> str:
        """URL without user; with TLS the scheme is rediss."""
        return f"{'rediss' if self.options.tls else 'redis'}://127.0.0.1:{self.port}/0"

    @property
    def socket_path(self) -> Path:
        """The unix socket, if `unix_socket` was asked for."""
        return self._folder / "s"

    def start(self) -> Self:
        """Start it, for the first time or again on its data, and wait until it answers."""
        conf = self._folder / "server.conf"
        if not conf.exists():  # a Sentinel or the server itself may have rewritten it since
            self._data.mkdir()
            conf.write_text(self._conf())
        self.process.start()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Kill it and remove its data."""
        self.process.kill()
        give_back(self.port)
        remove_run_dir(self._folder)

    def kill(self) -> None:
        """SIGKILL; the data stays for the next `start`."""
        self.process.kill()

    def terminate(self) -> None:
        """An orderly stop; the data stays for the next `start`."""
        self.process.terminate()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.thaw()

    def flush(self) -> None:
        """Remove all keys while it runs."""
        with self.client() as client:
            client.execute_command("FLUSHALL")

    def copy_data(self, name: str) -> None:
        """Keep the data as it is on disk now (as a backup would); the server may be running."""
        shutil.copytree(self._data, self._folder / f"copy-{name}")

    def restore_data(self, name: str) -> None:
        """Put a kept copy back; the server must be stopped."""
        self.lose_data()
        shutil.copytree(self._folder / f"copy-{name}", self._data, dirs_exist_ok=True)

    def lose_data(self) -> None:
        """Remove everything on disk; the server must be stopped."""
        if self.process.running:
            raise AssertionError("kill or terminate the server first")
        shutil.rmtree(self._data)
        self._data.mkdir()

    def client(self) -> "redis.Redis":
        """A client with all rights."""
        if self.options.users:
            return connect(self.port, ADMIN, ADMIN_PASSWORD, self.certs)
        return connect(self.port, certs=self.certs)

    def info(self, section: str) -> dict[str, object]:
        """INFO of one section."""
        with self.client() as client:
            return dict(client.info(section))

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until it answers PING; its data is loaded then."""
        with self.client() as client:
            wait_until(
                lambda: bool(client.ping()),
                f"{self.options.binary} answers",
                timeout_s=timeout_s,
                ignoring=_NOT_YET,
            )

    def _conf(self) -> str:
        lines = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self._data),
            "save": '""',
            "appendonly": "no" if self.options.fsync is None else "yes",
            "appendfsync": self.options.fsync or "everysec",
            "maxmemory-policy": "noeviction",
        }
        if self.options.tls:
            self.certs = make_certs(self._folder / "certs")
            lines |= {
                "port": "0",
                "tls-port": str(self.port),
                "tls-cert-file": str(self.certs.server_cert),
                "tls-key-file": str(self.certs.server_key),
                "tls-ca-cert-file": str(self.certs.ca),
                "tls-auth-clients": "optional",
                "tls-replication": "yes",
            }
        if self.options.unix_socket:
            lines["unixsocket"] = str(self.socket_path)
        if self.options.users:
            acl = self._folder / "users.acl"
            everything = f"user {ADMIN} on >{ADMIN_PASSWORD} ~* &* +@all"
            acl.write_text("\n".join(["user default off", everything, *self.options.users]) + "\n")
            lines["aclfile"] = str(acl)
        lines |= self.options.config
        return "".join(f"{key} {value}\n" for key, value in lines.items())
