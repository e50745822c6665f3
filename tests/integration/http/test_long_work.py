"""docs/guides/long-work.md on a real sidecar, and leases that end with their connection (R21)."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.ports import give_back
from tests.integration.http.conftest import Sidecar, call, sidecar_in
from tests.support.paths import REPO, remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(240)
PAGE = (REPO / "docs" / "guides" / "long-work.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = {kind: [body for k, body in BLOCK.findall(PAGE) if k == kind] for kind in ("sh", "python")}
JSON = {"Content_Type": "application/json"}
VIDEOS = """
[subscriptions.videos]
topics = ["videos"]
start = "earliest"
lease_ms = "1m"
message_ttl_ms = "1d"
"""


@pytest.fixture(scope="module")
def studio() -> Iterator[Sidecar]:
    """A sidecar with the page's subscription, which closes idle connections very soon."""
    folder = run_dir("long")
    made = sidecar_in(folder)
    config = folder / "ackd.toml"
    text = config.read_text().replace("[server]", "[server]\nkeepalive_timeout_ms = 5000")
    one = 'adapter = "local"\noptions = {partitions = 1}'
    config.write_text(text.replace('adapter = "local"', one) + VIDEOS)
    made.process.start()

    def there() -> bool:
        path = "/v1/topics/videos/messages"
        body = b'{"name": "first", "frames": 0}'
        return call(made.port, "POST", path, body, **JSON)[0] == 201

    try:
        wait_until(there, "the topic can be made", ignoring=(OSError,))
        wait_until(made.ready, "the sidecar is ready", ignoring=(OSError,))
        wait_until(lambda: taken(made) == 1, "the first message to come")
        yield made
        assert made.process.running, made.process.log()
    finally:
        made.process.kill()  # gently it would wait for leases that are still out
        give_back(made.port, made.admin_port)
        remove_run_dir(folder)


def taken(sidecar: Sidecar) -> int:
    """Take and ack what is there."""
    path = "/v1/subscriptions/videos/receive"
    _, got = call(sidecar.port, "POST", path, b'{"max": 100}', **JSON)
    for message in got.get("messages", ()):
        assert call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/ack")[0] == 200
    return len(got.get("messages", ()))


def run(sidecar: Sidecar, command: str) -> dict[str, Any]:
    """A command of the page, on this sidecar."""
    for port, there in ((7080, sidecar.port), (7081, sidecar.admin_port)):
        command = command.replace(f"localhost:{port}", f"127.0.0.1:{there}")
    argv = ["bash", "-c", f"{command.strip()} -sS"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def worker(sidecar: Sidecar, folder: Path, name: str) -> Process:
    """The page's worker, a quick one."""
    [code] = BLOCKS["python"]
    script = folder / "worker.py"
    script.write_text(code)
    ackd = f"127.0.0.1:{sidecar.port}"
    env = {**os.environ, "ACKD": ackd, "FRAME_S": "0.05"}
    return Process([sys.executable, script], log_path=folder / name, env=env)


def test_the_page_renders_videos(studio: Sidecar, tmp_path: Path) -> None:
    """A worker is killed with -9: the next one goes on at its note, and the attempt is the same."""
    extend, publish, cancel = BLOCKS["sh"]
    assert run(studio, publish)["id"] == "videos/0/1"
    first = worker(studio, tmp_path, "first")
    with ExitStack() as stack:
        first.start()
        stack.callback(first.stop)
        wait_until(lambda: "rendering cats from frame 0" in first.log(), "the first worker")
        wait_until(lambda: notes(studio) >= 1, "a few frames")
        first.kill()
        second = worker(studio, tmp_path, "second")
        second.start()
        stack.callback(second.stop)
        wait_until(lambda: "finished cats acked" in second.log(), "the second worker")
        began = re.search(r"rendering cats from frame (\d+)", second.log())
        assert began is not None
        assert 10 <= int(began[1]) < 100
        assert int(began[1]) % 10 == 0

        assert run(studio, publish.replace("100", "100000"))["id"] == "videos/0/2"
        wait_until(lambda: second.log().count("rendering cats") == 2, "the second video")
        stop = cancel.replace("videos/0/1", "videos/0/2")
        assert run(studio, stop) == {"id": "videos/0/2", "state": "dead"}
        said = "stopped: {'then': 'dead', 'reason': 'wrong file'}"
        wait_until(lambda: said in second.log(), "the worker to stop")
        status, _ = call(
            studio.admin_port, "POST", "/v1/subscriptions/videos/messages/videos/0/2/cancel"
        )
        assert status == 404
    run(studio, publish)
    lease = next_one(studio)["lease"]
    assert run(studio, extend.replace("$LEASE", lease))["status"] == "extended"
    assert call(studio.port, "POST", f"/v1/leases/{lease}/release")[0] == 200
    again = next_one(studio)
    assert again["note"] == "240"
    assert call(studio.port, "POST", f"/v1/leases/{again['lease']}/ack")[0] == 200


def next_one(sidecar: Sidecar) -> dict[str, Any]:
    """The next message."""

    def some() -> list[dict[str, Any]]:
        path = "/v1/subscriptions/videos/receive"
        return list(call(sidecar.port, "POST", path, b"", **JSON)[1]["messages"])

    return wait_until(some, "a message")[0]


def notes(sidecar: Sidecar) -> float:
    """How many notes the sidecar has taken."""
    with closing(HTTPConnection("127.0.0.1", sidecar.admin_port, timeout=60)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    found = re.search(r'^ackd_notes_total\{subscription="videos"\} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


class Client:
    """A keep-alive connection."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.connection = HTTPConnection("127.0.0.1", sidecar.port, timeout=60)

    def post(self, path: str, **body: object) -> tuple[int, dict[str, Any]]:
        """(status, answer)."""
        kind = {"Content-Type": "application/json"}
        self.connection.request("POST", path, json.dumps(body), kind)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def receive(self, **body: object) -> list[dict[str, Any]]:
        """Messages, as soon as there are any."""

        def some() -> list[dict[str, Any]]:
            status, got = self.post("/v1/subscriptions/videos/receive", **body)
            assert status == 200, got
            return list(got["messages"])

        return wait_until(some, "a message")

    def close(self) -> None:
        """Hang up."""
        self.connection.close()


def publish(sidecar: Sidecar, count: int) -> None:
    body = json.dumps({"messages": [{"json": n} for n in range(count)]}).encode()
    path = "/v1/topics/videos/messages:batch"
    assert call(sidecar.port, "POST", path, body, **JSON)[0] == 200


def test_r21_unsettled_leases_go_back_uncounted_with_their_connection(studio: Sidecar) -> None:
    """Settled ones and those of other receives stay as they are."""
    publish(studio, 4)
    with closing(Client(studio)) as dies, closing(Client(studio)) as lives:
        [plain] = dies.receive(max=1, wait_ms=2000)
        mine = dies.receive(max=1, wait_ms=2000, release_on_close=True)
        mine += dies.receive(max=1, wait_ms=2000, release_on_close=True)
        [other] = lives.receive(max=1, release_on_close=True)
        for lease, do in ((mine[0]["lease"], "ack"), (mine[1]["lease"], "extend")):
            assert dies.post(f"/v1/leases/{lease}/{do}")[0] == 200
        dies.close()
        [again] = lives.receive(max=10, wait_ms=2000)
        assert (again["id"], again["attempt"]) == (mine[1]["id"], 1)
        assert again["deadline_ms"] >= mine[1]["deadline_ms"]
        status, lost = lives.post(f"/v1/leases/{mine[1]['lease']}/ack")
        assert (status, lost["now"]["state"]) == (410, "leased")
        for message in (plain, other, again):
            assert lives.post(f"/v1/leases/{message['lease']}/ack")[0] == 200


def test_a_connection_with_such_leases_is_not_closed_for_being_idle(studio: Sidecar) -> None:
    """Here idle connections are closed after five seconds."""
    publish(studio, 1)
    with closing(Client(studio)) as idle, closing(Client(studio)) as busy:
        idle.connection.request("GET", "/v1/subscriptions")
        assert idle.connection.getresponse().read()
        [message] = busy.receive(max=1, wait_ms=2000, release_on_close=True)

        def closed() -> bool:
            sock = idle.connection.sock
            return sock is None or sock.recv(1, socket.MSG_DONTWAIT) == b""

        wait_until(closed, "the idle connection to be closed", ignoring=(BlockingIOError,))
        assert busy.post(f"/v1/leases/{message['lease']}/ack")[0] == 200


def test_release_on_close_needs_a_connection_and_no_attempt_id(studio: Sidecar) -> None:
    path, body = "/v1/subscriptions/videos/receive", b'{"release_on_close": true}'
    status, answer = call(studio.port, "POST", path, body, Connection="close", **JSON)
    assert (status, answer["errors"][0]["pointer"]) == (422, "/release_on_close")
    body = b'{"release_on_close": true, "attempt_id": "a"}'
    status, answer = call(studio.port, "POST", path, body, **JSON)
    assert (status, answer["errors"][0]["pointer"]) == (422, "/release_on_close")


def test_the_joined_call_and_octets_carry_it_too(studio: Sidecar) -> None:
    publish(studio, 2)
    with closing(Client(studio)) as dies, closing(Client(studio)) as lives:
        [one] = dies.receive(max=1, wait_ms=2000, release_on_close=True)
        noted = {"lease": one["lease"], "do": "extend", "note": "zwölf"}
        status, got = dies.post(
            "/v1/subscriptions/videos/receive",
            settle=[noted],
            max=1,
            wait_ms=20_000,
            release_on_close=True,
        )
        assert (status, [each["status"] for each in got["settled"]]) == (200, ["extended"])
        assert len(got["messages"]) == 1
        dies.close()
        found = {}
        for _ in range(2):
            path, body = "/v1/subscriptions/videos/receive", b'{"wait_ms": 20000}'
            headers = {"Accept": "application/octet-stream", "Content-Type": "application/json"}
            lives.connection.request("POST", path, body, headers)
            answer = lives.connection.getresponse()
            answer.read()
            found[answer.headers["Ackd-Id"]] = answer.headers["Ackd-Note"]
            assert lives.post(f"/v1/leases/{answer.headers['Ackd-Lease']}/ack")[0] == 200
        assert found == {one["id"]: '"zw\\u00f6lf"', got["messages"][0]["id"]: None}
