"""Lines of the client library's log become lines of ackd's log, at the levels that it shows."""

import json
import logging
import subprocess
import sys

import pytest

from ackd_adapters.pulsar.library_log import forward
from tests.support.paths import REPO

AT = "2026-11-26 16:20:00.123"


@pytest.mark.parametrize(
    ("word", "level"),
    [("DEBUG", 10), ("INFO ", 20), ("WARN ", 30), ("ERROR", 40)],
)
def test_a_line_keeps_its_level(word: str, level: int) -> None:
    told: list[tuple[int, str]] = []
    line = f"{AT} {word} [140123] ClientConnection:42 | [a -> b] closed | again"
    assert forward(line, logging.WARNING, lambda *each: told.append(each)) == level
    assert told == [(level, "ClientConnection:42: [a -> b] closed | again")]


def test_the_rest_of_a_line_has_its_level() -> None:
    told: list[tuple[int, str]] = []
    assert forward("and more", logging.ERROR, lambda *each: told.append(each)) == logging.ERROR
    assert told == [(logging.ERROR, "and more")]


CLIENTS = """
import json, logging, os, sys, threading, time
import pulsar
from ackd_adapters.pulsar import PulsarOptions
from ackd_adapters.pulsar.connection import Connection

told, came = [], threading.Event()

class Kept(logging.Handler):
    def emit(self, record):
        told.append((record.levelno, record.getMessage()))
        if record.levelno >= logging.ERROR:
            came.set()

log = logging.getLogger("ackd.pulsar.client")
log.addHandler(Kept())
log.setLevel(getattr(logging, sys.argv[1]))
nobody = "127.0.0.1:1"
options = PulsarOptions(
    service_url=f"pulsar://{nobody}", admin_url=f"http://{nobody}", request_timeout_ms=500
)
opened = []
for _ in range(2):
    connection = Connection(options)
    connection.open()
    opened.append(connection)
    try:
        connection.client.create_reader("persistent://public/default/a", pulsar.MessageId.earliest)
    except pulsar.PulsarException:
        pass
came.wait(60)
end = time.monotonic() + 60
def logs():
    return [each for each in threading.enumerate() if each.name == "ackd-pulsar-log"]
while len(logs()) > 1 and time.monotonic() < end:
    time.sleep(0.01)
print(json.dumps({"told": told, "threads": len(logs())}), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(("asked", "least"), [("WARNING", 40), ("INFO", 20)])
def test_clients_of_a_process_log_through_one_thread_what_is_wanted(asked: str, least: int) -> None:
    """In a process of its own, as the library keeps the logger of a process's first client."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENTS, asked],
        stdout=subprocess.PIPE,
        check=True,
        cwd=REPO,
        timeout=120,
    )
    found = json.loads(done.stdout)
    levels = [level for level, _ in found["told"]]
    assert min(levels) == least, "a client without a broker tells of errors, and at INFO of more"
    assert any("127.0.0.1:1" in text for _, text in found["told"])
    assert found["threads"] == 1
