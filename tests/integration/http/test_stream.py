"""Streams of a real sidecar: curl, the bound on unsettled messages, readers that do not read."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import aiohttp
import psutil
import pytest

from tests.integration.http.conftest import (
    Sidecar,
    call,
    made_sidecar,
    start_empty,
)
from tests.support import sse
from tests.support.wait import wait_until

STREAM = "/v1/subscriptions/orders/stream"
NAMED = ("-H", "Ackd-Worker: reader")
BATCH = "/v1/topics/orders/messages:batch"
JSON = {"Content_Type": "application/json"}
MIB = 1024 * 1024
CURL_S = 100


@pytest.fixture
def own() -> Iterator[Sidecar]:
    """A sidecar that the test may stop; its topics are there and empty."""
    with made_sidecar(drain_ms=8_000) as made:
        with (made.folder / "ackd.toml").open("a") as config:
            config.write('window_bytes_max = "32MiB"\n')  # of the last section: images
        start_empty(made)
        yield made


def publish(sidecar: Sidecar, values: list[str]) -> None:
    body = json.dumps({"messages": [{"text": value} for value in values]}).encode()
    status, answer = call(sidecar.port, "POST", BATCH, body, **JSON)
    assert status == 200, answer


def settle(sidecar: Sidecar, lease: str, do: str = "ack") -> str:
    body = json.dumps({"items": [{"lease": lease, "do": do}]}).encode()
    _, answer = call(sidecar.port, "POST", "/v1/settle", body, **JSON)
    return str(answer["results"][0]["status"])


def is_beat(line: dict[str, Any]) -> bool:
    """Whether a line only says that the stream lives; on a busy machine they come anywhere."""
    return "heartbeat" in line


def next_line(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The next line of a stream that says more than that it lives."""
    assert child.stdout is not None
    line: dict[str, Any] = {"heartbeat": 0}
    while is_beat(line):
        line = json.loads(child.stdout.readline())
    return line


def curl(sidecar: Sidecar, query: str, *arguments: str) -> bytes:
    argv = ["curl", "-sN", *NAMED, *arguments, f"{sidecar.url}{STREAM}?{query}"]
    return subprocess.run(argv, check=True, capture_output=True, timeout=CURL_S).stdout


def test_curl_reads_lines_and_a_strict_reader_events(sidecar: Sidecar) -> None:
    publish(sidecar, ["1", "2"])
    lines = [json.loads(line) for line in curl(sidecar, "duration_ms=4000").splitlines()]
    assert sorted(line["json"] for line in lines[:-1]) == [1, 2]
    assert lines[-1] == {"end": "duration"}
    for line in lines[:-1]:
        assert settle(sidecar, line["lease"]) == "acked"
    publish(sidecar, ["3"])
    raw = curl(sidecar, "duration_ms=4000", "-H", "Accept: text/event-stream")
    message, end = sse.parse(raw)
    assert (message.name, end.name) == ("message", "end")
    lease = json.loads(message.data)["lease"]
    assert settle(sidecar, lease) == "acked"


async def test_never_more_unsettled_than_in_flight(sidecar: Sidecar) -> None:
    """1,000 messages with `in_flight` 50: the bound is reached and never passed.

    A message counts until the request that settles it is sent, so the count here is never above
    the sidecar's own.
    """
    for _ in range(4):
        publish(sidecar, ["0"] * 250)
    leases: asyncio.Queue[str] = asyncio.Queue()
    full = asyncio.Event()
    held = 0
    seen: set[str] = set()

    async def settler(session: aiohttp.ClientSession) -> None:
        nonlocal held
        await full.wait()
        while True:
            body = {"items": [{"lease": await leases.get(), "do": "ack"}]}
            held -= 1
            async with session.post("/v1/settle", json=body) as answer:
                assert answer.status == 200, await answer.text()
            leases.task_done()

    async with (
        aiohttp.ClientSession(sidecar.url) as session,
        asyncio.TaskGroup() as group,
        session.get(
            STREAM, params={"in_flight": "50"}, headers={"Ackd-Worker": "reader"}
        ) as answer,
    ):
        workers = [group.create_task(settler(session)) for _ in range(3)]
        async for line in answer.content:
            message: dict[str, Any] = json.loads(line)
            if is_beat(message):
                continue
            assert message["id"] not in seen, "came twice"
            seen.add(message["id"])
            held += 1
            assert held <= 50
            if held == 50 and not full.is_set():
                # Nobody has settled yet: a fifty-first would have time to come.
                asyncio.get_running_loop().call_later(0.3, full.set)
            leases.put_nowait(message["lease"])
            if len(seen) == 1000:
                break
        await leases.join()
        for worker in workers:
            worker.cancel()


def test_settling_in_other_ways_makes_room_too(sidecar: Sidecar) -> None:
    """Run out, dead, acked: whatever ends a lease lets the next message through."""
    publish(sidecar, ["1", "2", "3"])
    query = "in_flight=1&duration_ms=100000&lease_ms=5000"
    argv = ["curl", "-sN", *NAMED, f"{sidecar.url}{STREAM}?{query}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        first = next_line(child)  # left alone: its lease runs out
        attempts: dict[str, int] = {}
        while len(attempts) < 3:
            message = next_line(child)
            do = "dead" if not attempts else "ack"
            assert settle(sidecar, message["lease"], do) == {"dead": "dead", "ack": "acked"}[do]
            attempts[message["id"]] = message["attempt"]
        child.kill()
    assert attempts.pop(first["id"]) == 2
    assert list(attempts.values()) == [1, 1]


def test_client_that_never_reads_keeps_memory_flat(own: Sidecar) -> None:
    """I8: what nobody reads is not sent; each such client costs one batch, and is cut off in time.

    Messages under lease are in memory anyway, up to `window_bytes_max` (32 MiB here). A stream that
    went on writing would hold all of them once more, a third larger.
    """
    process = psutil.Process(own.process.pid)
    before = process.memory_info().rss
    value = bytes(900_000)
    request = b"GET /v1/subscriptions/images/stream?in_flight=1000 HTTP/1.1\r\n"
    request += b"Host: localhost\r\nAckd-Worker: slow\r\n\r\n"
    grown = 0
    with ExitStack() as stack:
        for _ in range(2):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", own.port))
            client.sendall(request)
        wait_until(lambda: streams(own) == 2, "streams are open")
        for _ in range(60):
            assert call(own.port, "POST", "/v1/topics/images/messages", value)[0] == 201
            grown = max(grown, process.memory_info().rss - before)
        wait_until(lambda: streams(own) == 0, "the streams were cut off", timeout_s=60)
    grown = max(grown, process.memory_info().rss - before)
    assert grown < 55 * MIB, f"{grown / MIB:.0f} MiB"


def streams(sidecar: Sidecar) -> float:
    argv = ["curl", "-s", f"{sidecar.admin_url}/metrics"]
    text = subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout.decode()
    found = re.search(r'ackd_streams\{subscription="images"\} (\S+)', text)
    return float(found[1]) if found else 0


def test_drain_ends_a_stream_with_a_line(own: Sidecar) -> None:
    publish(own, ["1"])
    argv = ["curl", "-sN", *NAMED, f"{own.url}{STREAM}?in_flight=1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        message = next_line(child)
        own.process.signal(15)
        assert next_line(child) == {"end": "drain"}
        assert child.stdout is not None
        assert child.stdout.read() == b""
    assert settle(own, message["lease"]) == "acked"
    assert own.process.wait(60) == 0
