"""A real `ackd serve` process (local broker, real store) for tests that talk HTTP to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.ports import free_port, give_back
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.wait import wait_until

CONFIG = """
state_dir = "{folder}/state"

[server]
listen = "{listen}"
admin_listen = "127.0.0.1:{admin_port}"
wait_ms_max = 2000
body_bytes_max = 1048576
head_timeout_ms = 5000
body_timeout_ms = 5000
connections_max = 200
drain_ms = {drain_ms}

[brokers.local]
adapter = "local"

[subscriptions.orders]
topics = ["orders"]
start = "earliest"

[subscriptions.images]
topics = ["images"]
start = "earliest"
payload = "binary"
"""
TOPICS = ("orders", "images")


@dataclass(slots=True)
class Sidecar:
    """A running sidecar: where it listens, its process and its folder."""

    process: Process
    listen: str
    port: int
    admin_port: int
    folder: Path

    @property
    def url(self) -> str:
        """The data port."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """The admin port."""
        return f"http://127.0.0.1:{self.admin_port}"

    def ready(self) -> bool:
        """Whether it says that it is."""
        if not self.process.running:
            raise AssertionError(self.process.log())
        return call(self.admin_port, "GET", "/readyz")[0] == HTTPStatus.OK

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.process.start()
        wait_until(self.ready, "the sidecar is ready", timeout_s=60, ignoring=(OSError,))


def sidecar_in(
    folder: Path, *, unix: bool = False, drain_ms: int = 3_000, settings: str = CONFIG
) -> Sidecar:
    """A sidecar with a folder of its own, not started yet."""
    port, admin_port = free_port(), free_port()
    listen = f"unix:{folder}/ackd.sock" if unix else f"127.0.0.1:{port}"
    config = folder / "ackd.toml"
    text = settings.format(folder=folder, listen=listen, admin_port=admin_port, drain_ms=drain_ms)
    config.write_text(text)
    argv: list[str | Path] = [sys.executable, "-m", "ackd", "serve", "--config", config]
    process = Process(argv, log_path=folder / "log")
    return Sidecar(process, listen, port, admin_port, folder)


def call(
    port: int, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, Any]]:
    """One request on a connection of its own; (status, JSON of the answer). Raises OSError."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        raw = answer.read()
    return answer.status, json.loads(raw) if raw else {}


def make_topics(sidecar: Sidecar) -> bool:
    """The local broker makes a topic with its first message."""
    if not sidecar.process.running:
        raise AssertionError(sidecar.process.log())
    for topic in TOPICS:
        status, _ = call(sidecar.port, "POST", f"/v1/topics/{topic}/messages", b"1")
        if status != HTTPStatus.CREATED:
            return False
    return True


def drop_all(sidecar: Sidecar) -> bool:
    """Take and ack what `make_topics` left; True when there is nothing any more."""
    lags = []
    for topic in TOPICS:
        base = f"/v1/subscriptions/{topic}"
        _, answer = call(sidecar.port, "POST", f"{base}/receive", b'{"max":100}')
        for message in answer.get("messages", ()):
            call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/ack")
        lags += call(sidecar.port, "GET", f"{base}/lag")[1].get("partitions", ())
    return bool(lags) and all(each["end"] == each["watermark"] for each in lags)


@contextmanager
def made_sidecar(**more: Any) -> Iterator[Sidecar]:
    """A sidecar in a folder of its own, not started yet; `more` as for `sidecar_in`. At the end
    nothing is left of it.
    """
    folder = run_dir("http")
    made = sidecar_in(folder, **more)
    try:
        yield made
    finally:
        made.process.kill()  # gently it would wait for leases that are still out
        give_back(made.port, made.admin_port)
        remove_run_dir(folder)


def start_with_topics(sidecar: Sidecar) -> None:
    """Start it and wait until its topics are there and it is ready."""
    sidecar.process.start()
    wait_until(lambda: make_topics(sidecar), "topics can be made", ignoring=(OSError,))
    wait_until(sidecar.ready, "the sidecar is ready", ignoring=(OSError,))


def start_empty(sidecar: Sidecar) -> None:
    """Start it and wait until it is ready and its topics are there and empty."""
    start_with_topics(sidecar)
    wait_until(lambda: drop_all(sidecar), "the topics are empty")


@pytest.fixture(scope="module")
def sidecar() -> Iterator[Sidecar]:
    """One sidecar for the tests of a module. Do not stop it."""
    with made_sidecar() as made:
        start_empty(made)
        yield made
        assert made.process.running, made.process.log()
