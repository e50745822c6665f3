"""Stores of several servers, and a disk that can be filled."""

import contextlib
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ackd_torture.child import Part
from ackd_torture.history import EventKind, Recorder
from tests.support.redis import (
    SERVICE,
    Flavour,
    RedisCluster,
    RedisSentinel,
    RedisServer,
    binary,
)
from tests.support.rocketmq.part import ProcessPart

SETTLED_S = 60.0
DISK_MB = 512


class ServerPart:
    """One server of several. What others may forget while it is away is noted, if `losses`."""

    def __init__(
        self,
        name: str,
        server: RedisServer,
        settled: Callable[[], None],
        losses: Recorder | None,
    ) -> None:
        self.name = name
        self._server = server
        self._settled = settled
        self._losses = losses

    def start(self) -> None:
        """Start it again, and wait until all are in step."""
        self._server.start()
        self._end()

    def kill(self) -> None:
        """SIGKILL."""
        self._begin()
        self._server.kill()

    def freeze(self) -> None:
        """SIGSTOP; for longer than the others wait it means a failover, too."""
        self._begin()
        self._server.freeze()

    def thaw(self) -> None:
        """SIGCONT, and wait until all are in step."""
        self._server.thaw()
        self._end()

    def stop(self) -> None:
        """It goes with the others."""

    def _begin(self) -> None:
        if self._losses is not None:
            self._losses.note(EventKind.DATA_LOST, note=f"failover beside {self.name}")
            self._losses.flush()

    def _end(self) -> None:
        """While another one is broken, too, they may not be in step for long: then what it says
        about losses stays open until the end of the next fault of this part, or of the run.
        """
        with contextlib.suppress(AssertionError):
            self._settled()
            if self._losses is not None:
                self._losses.note(EventKind.HEALED, note=f"failover beside {self.name}")
                self._losses.flush()


class Servers(ABC):
    """Several servers as the store of a deployment. `folder` gets the history of what they may
    have forgotten; None: settles wait for a replica, so nothing may be forgotten.
    """

    def __init__(self, folder: Path | None) -> None:
        self._losses = None if folder is None else Recorder(folder / "failovers.ndjson", "failover")

    @property
    @abstractmethod
    def url(self) -> str:
        """Address for `store.url`."""

    @abstractmethod
    def start(self) -> None:
        """Start all, and wait until they are in step."""

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """Each server (and Sentinel)."""

    @abstractmethod
    def _end(self) -> None:
        """Kill all, and remove the data."""

    def stop(self) -> None:
        """End all."""
        if self._losses is not None:
            self._losses.close()
        self._end()


class SentinelStore(Servers):
    """A primary, a replica, three Sentinels."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder)
        self._all = RedisSentinel(binary(Flavour.VALKEY))

    @property
    def url(self) -> str:
        """With all Sentinels."""
        hosts = ",".join(f"{host}:{port}" for host, port in self._all.sentinel_addresses)
        return f"sentinel://{hosts}/{SERVICE}"

    def start(self) -> None:
        """Start all, and wait until they are in step."""
        self._all.start()

    def parts(self) -> Sequence[Part]:
        """Servers and Sentinels."""
        found: list[Part] = [
            ServerPart(f"store {n + 1}", server, self._settled, self._losses)
            for n, server in enumerate(self._all.servers)
        ]
        sentinels = zip(self._all.sentinels, self._all.sentinel_ports, strict=True)
        for number, (process, port) in enumerate(sentinels):
            found.append(ProcessPart(f"Sentinel {number + 1}", process, port))
        return found

    def _settled(self) -> None:
        self._all.wait_settled(SETTLED_S)

    def _end(self) -> None:
        self._all.stop()


class ClusterStore(Servers):
    """Three primaries, each with a replica."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder)
        self._all = RedisCluster(binary(Flavour.VALKEY), replicas=True)

    @property
    def url(self) -> str:
        """With all nodes."""
        return "cluster://" + ",".join(f"{host}:{port}" for host, port in self._all.addresses)

    def start(self) -> None:
        """Start all, and wait until they are in step."""
        self._all.start()

    def parts(self) -> Sequence[Part]:
        """Each server."""
        return [
            ServerPart(f"store {n + 1}", server, self._settled, self._losses)
            for n, server in enumerate(self._all.servers)
        ]

    def _settled(self) -> None:
        self._all.wait_ok(SETTLED_S)

    def _end(self) -> None:
        self._all.stop()


class Disk:
    """A small disk for the store's data, which can be filled. Needs the right to mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ballast = folder / "ballast"

    @staticmethod
    def allowed() -> bool:
        """Whether this process may mount one."""
        return os.geteuid() == 0

    @contextlib.contextmanager
    def mounted(self) -> Iterator[None]:
        """It is there meanwhile."""
        self._folder.mkdir(parents=True)
        options = f"size={DISK_MB}m"
        _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._folder))
        try:
            yield
        finally:
            _run("umount", "-l", str(self._folder))

    def fill(self) -> None:
        """Leave no byte free."""
        room = os.statvfs(self._folder)
        with self._ballast.open("wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
        with self._ballast.open("ab") as file, contextlib.suppress(OSError):
            while True:
                os.write(file.fileno(), bytes(4096))

    def free(self) -> None:
        """Give it all back."""
        self._ballast.unlink()


def _run(*words: str) -> None:
    subprocess.run(words, check=True)
