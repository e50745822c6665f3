"""The server: moto, which keeps objects in memory and speaks S3 with multipart uploads."""

import os
import sys
import urllib.request
from pathlib import Path
from typing import Self
from xml.etree import ElementTree as ET

from ackd_torture.ports import free_port, give_back, listens
from tests.support.other import S3 as NAME
from tests.support.other import packages
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.started import Started
from tests.support.wait import wait_until

STARTED_S = 120.0
_NAMES = "{http://s3.amazonaws.com/doc/2006-03-01/}"


class S3(Started):
    """On 127.0.0.1. With `closed` it knows nobody and denies everything; else it asks nobody."""

    def __init__(self, *, closed: bool = False) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = run_dir("s3")
        environ = {**os.environ, "PYTHONPATH": str(packages(NAME)), "PYTHONDONTWRITEBYTECODE": "1"}
        if closed:
            environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "0"
        self._process = Process(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            log_path=self._folder / "server.log",
            env=environ,
        )

    def start(self) -> Self:
        """Start it and wait until it listens."""
        try:
            self._process.start()
            wait_until(lambda: listens(self.port), "the S3 server listens", timeout_s=STARTED_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill it; the objects are gone."""
        self._process.kill()
        give_back(self.port)
        remove_run_dir(self._folder)

    def make_bucket(self, name: str) -> None:
        """A new bucket."""
        self._ask("PUT", name)

    def put(self, address: str, content: Path) -> None:
        """Upload a file as `bucket/key`."""
        self._ask("PUT", address, content.read_bytes())

    def keys(self, bucket: str, prefix: str) -> list[str]:
        """The first thousand keys that begin with `prefix`."""
        answer = ET.fromstring(self._ask("GET", f"{bucket}?list-type=2&prefix={prefix}"))  # noqa: S314  our own
        return [each.text or "" for each in answer.iter(f"{_NAMES}Key")]

    def _ask(self, method: str, what: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(  # noqa: S310  http to ourselves
            f"{self.url}/{what}", data=body, method=method, headers=headers
        )
        with urllib.request.urlopen(request, timeout=STARTED_S) as answer:  # noqa: S310
            found: bytes = answer.read()
        return found
