"""A real standalone Pulsar: broker, bookie and metadata in one process, to be killed."""

from pathlib import Path
from typing import Self

from ackd_torture.ports import free_port, give_back
from tests.support.certs import Certs, make_certs
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process, ProcessFailedError
from tests.support.pulsar.admin import Admin, AdminError
from tests.support.pulsar.config import Ports, PulsarOptions, Secret, standalone_conf
from tests.support.pulsar.install import install
from tests.support.started import Started
from tests.support.wait import wait_until

START_TIMEOUT_S = 150.0
LOG_TAIL = 3000


class Pulsar(Started):
    """A Pulsar with its own data, made by `start`, gone after `stop`. Also a context manager."""

    def __init__(self, options: PulsarOptions | None = None) -> None:
        self.options = options or PulsarOptions()
        self.certs: Certs | None = None
        self.secret: Secret | None = None
        self._folder: Path | None = None
        self._ports: Ports | None = None
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        """The broker's."""
        assert self._process is not None
        return self._process

    @property
    def ports(self) -> Ports:
        """Where it listens on 127.0.0.1."""
        assert self._ports is not None
        return self._ports

    @property
    def url(self) -> str:
        """What clients connect to."""
        scheme = "pulsar+ssl" if self.options.security else "pulsar"
        return f"{scheme}://127.0.0.1:{self.ports.broker}"

    @property
    def web_url(self) -> str:
        """The admin interface."""
        scheme = "https" if self.options.security else "http"
        return f"{scheme}://127.0.0.1:{self.ports.web}"

    @property
    def admin(self) -> Admin:
        """Allowed everything."""
        token = None if self.secret is None else self.secret.token("admin")
        return Admin(self.web_url, ca=None if self.certs is None else self.certs.ca, token=token)

    def start(self) -> Self:
        """Install on first use, start, wait until the default namespace is there."""
        installation = install()
        self._folder = folder = run_dir("pulsar")
        try:
            ports = self._ports = Ports(free_port(), free_port(), free_port())
            if self.options.security:
                self.certs = make_certs(folder / "certs")
                self.secret = Secret()
            conf = folder / "standalone.conf"
            conf.write_text(standalone_conf(ports, self.options, self.certs, self.secret))
            java = installation.java(heap_mb=self.options.heap_mb, direct_mb=self.options.direct_mb)
            places: list[str | Path] = [
                *("--config", conf),
                *("--metadata-dir", folder / "data" / "metadata"),
                *("--bookkeeper-dir", folder / "data" / "bookkeeper"),
                *("--bookkeeper-port", str(ports.bookie)),
                *("--advertised-address", "127.0.0.1"),
            ]
            flags = ["--no-functions-worker", "--no-stream-storage"]
            self._process = Process([*java, *flags, *places], log_path=folder / "broker.log")
            self.restart()
        except BaseException:
            self.stop()
            raise
        return self

    def restart(self) -> None:
        """Start it (again) on its data and wait until it serves."""
        self.process.start()
        self.wait_ready()

    def kill(self) -> None:
        """SIGKILL; the data stays."""
        self.process.kill()

    def wait_ready(self) -> None:
        """`ready` alone is too early on a fresh folder: the default namespace comes after it."""

        def ready() -> bool:
            if not self.process.running:
                raise ProcessFailedError(f"the broker ended:\n{self.process.log()[-LOG_TAIL:]}")
            admin = self.admin
            if admin.ask("GET", "brokers/ready", timeout_s=5) != "ok":
                return False
            return "public/default" in admin.ask("GET", "namespaces/public", timeout_s=5)

        wait_until(
            ready,
            "the broker serves",
            timeout_s=START_TIMEOUT_S,
            interval_s=0.2,
            ignoring=(AdminError, OSError),
        )

    def stop(self) -> None:
        """Kill it and remove the data; nobody needs it flushed."""
        if self._process is not None:
            self._process.kill()
        if self._ports is not None:
            give_back(self._ports.web, self._ports.broker, self._ports.bookie)
        self._process = self._ports = None
        if self._folder is not None:
            remove_run_dir(self._folder)
            self._folder = None
