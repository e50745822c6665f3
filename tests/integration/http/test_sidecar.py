"""A real sidecar process: start, drain, socket file, clients that break off, abuse without end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import psutil
import pytest

from ackd_torture.ports import give_back
from tests.integration.http.conftest import (
    Sidecar,
    call,
    made_sidecar,
    sidecar_in,
    start_empty,
)
from tests.support.paths import remove_run_dir, run_dir
from tests.support.wait import wait_until, wait_until_async

ORDERS = "/v1/subscriptions/orders/receive"
TOPIC = "/v1/topics/orders/messages"
JSON = {"Content_Type": "application/json"}
DRAIN_S = 8.0
MIB = 1024 * 1024


@pytest.fixture
def own() -> Iterator[Sidecar]:
    """A sidecar that the test may stop; its topics are there and empty."""
    with made_sidecar(drain_ms=int(DRAIN_S * 1000)) as made:
        start_empty(made)
        yield made


def receive(sidecar: Sidecar, **body: object) -> list[dict[str, object]]:
    status, answer = call(sidecar.port, "POST", ORDERS, json.dumps(body).encode(), **JSON)
    assert status == 200, answer
    return list(answer["messages"])


def one(sidecar: Sidecar) -> dict[str, object]:
    """The only message that there is."""
    found = wait_until(lambda: receive(sidecar, wait_ms=2000), "a message")
    assert len(found) == 1
    return found[0]


def publish(sidecar: Sidecar, value: bytes = b"1") -> None:
    assert call(sidecar.port, "POST", TOPIC, value)[0] == 201


def test_drain_settles_what_is_out_and_then_ends(own: Sidecar) -> None:
    """SIGTERM: not ready, nothing new, waiting receives end, settles count; exit after the last."""
    publish(own)
    message = one(own)
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(call, own.port, "POST", ORDERS, b'{"wait_ms":2000}', **JSON)
        wait_until(lambda: 'ackd_waiters{subscription="orders"} 1.0' in metrics(own), "it waits")
        own.process.signal(15)
        wait_until(lambda: not own.ready(), "it says that it is not ready")
        status, answer = poll.result(timeout=60)
    assert (status, answer.get("type")) == (503, "/problems/draining")
    assert call(own.port, "POST", ORDERS)[1]["type"] == "/problems/draining"
    assert call(own.admin_port, "GET", "/livez")[0] == 200
    status, answer = call(own.port, "POST", f"/v1/leases/{message['lease']}/ack")
    assert (status, answer["status"]) == (200, "acked")
    assert own.process.wait(60) == 0
    assert "draining" in own.process.log()


def metrics(sidecar: Sidecar) -> str:
    connection = HTTPConnection("127.0.0.1", sidecar.admin_port, timeout=60)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_drain_ends_in_its_time_and_a_second_signal_ends_it_at_once(own: Sidecar) -> None:
    publish(own)
    one(own)
    start_s = time.monotonic()
    own.process.signal(15)
    assert own.process.wait(60) == 0
    assert time.monotonic() - start_s >= DRAIN_S * 0.9
    own.start()
    publish(own)
    wait_until(lambda: receive(own, wait_ms=500), "something is leased")
    start_s = time.monotonic()
    own.process.signal(2)
    wait_until(lambda: not own.ready(), "the drain has begun", ignoring=(OSError,))
    own.process.signal(2)
    assert own.process.wait(60) == 0
    assert time.monotonic() - start_s < DRAIN_S * 0.9


def test_client_that_hangs_up_while_waiting_costs_no_attempt(own: Sidecar) -> None:
    """R21 on the real engine: many break off, then one gets the message as its first attempt."""
    for number in range(20):
        with socket.create_connection(("127.0.0.1", own.port)) as client:
            body = b'{"wait_ms":2000,"max":100}'
            client.sendall(
                b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (ORDERS.encode(), len(body), body)
            )
            if number % 2:
                time.sleep(0.01)
    publish(own)
    message = one(own)
    assert message["attempt"] == 1


def test_broken_answer_is_had_again_by_its_attempt_id(own: Sidecar) -> None:
    publish(own)
    body = b'{"wait_ms":2000,"attempt_id":"try-1"}'
    with socket.create_connection(("127.0.0.1", own.port)) as client:
        client.sendall(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (ORDERS.encode(), len(body), body)
        )
        assert client.recv(12) == b"HTTP/1.1 200"
    status, answer = call(own.port, "POST", ORDERS, body, **JSON)
    assert status == 200
    assert answer["replayed"] is True
    assert answer["messages"][0]["attempt"] == 1
    lease = answer["messages"][0]["lease"]
    assert call(own.port, "POST", f"/v1/leases/{lease}/ack")[1] == {"status": "acked"}


def test_socket_file_serves_and_survives_a_kill() -> None:
    """Only owner and group may connect; a stale file of a killed sidecar is no obstacle."""
    folder = run_dir("http")
    made = sidecar_in(folder, unix=True)
    path = folder / "ackd.sock"

    def asked() -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /v1/subscriptions HTTP/1.0\r\n\r\n")
            return client.recv(15)

    try:
        for _ in range(2):
            made.process.start()
            answer = wait_until(asked, "the socket answers", ignoring=(OSError,))
            assert answer == b"HTTP/1.1 200 OK"
            assert path.stat().st_mode & 0o777 == 0o660
            made.process.kill()
            assert path.exists()
        made.process.start()
        wait_until(asked, "the socket answers", ignoring=(OSError,))
        made.process.terminate()
        assert not path.exists()
    finally:
        made.process.stop()
        give_back(made.port, made.admin_port)
        remove_run_dir(folder)


async def test_memory_is_bounded_under_huge_and_unfinished_bodies(own: Sidecar) -> None:
    """I8: 150 clients each send most of a 1 MiB body and stop; the sidecar keeps a part of it.

    It refuses what is beyond its budget, cuts the rest off in time, and serves others meanwhile.
    """
    process = psutil.Process(own.process.pid)
    before = process.memory_info().rss
    head = f"POST {TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MIB}\r\n\r\n".encode()
    part = os.urandom(MIB - 1)

    async def client() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", own.port)
        try:
            writer.write(head + part)
            line = await reader.readline()
            return int(line.split()[1]) if line else 0
        except ConnectionError:
            return 0
        finally:
            writer.close()

    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(client()) for _ in range(150)]
        grown = 0
        while not all(each.done() for each in clients):
            grown = max(grown, process.memory_info().rss - before)
            status, _ = await asyncio.to_thread(call, own.port, "GET", "/v1/subscriptions")
            assert status == 200
    statuses = {each.result() for each in clients}
    assert statuses <= {0, 408, 429}
    assert 429 in statuses
    # The budget is 16 MiB; socket buffers and the allocator come on top. Unbounded, it were 150.
    assert grown < 70 * MIB

    async def free() -> bool:
        text = await asyncio.to_thread(metrics, own)
        return 'ackd_http_connections{port="data"} 0.0' in text

    await wait_until_async(free, "all connections are gone", timeout_s=60)


@pytest.mark.alone
async def test_waiting_receive_gets_a_message_soon(own: Sidecar) -> None:
    """A long poll is woken by the message; it does not sit out its wait."""
    publish_s = []
    for _ in range(5):
        polling = asyncio.to_thread(receive, own, wait_ms=2000)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(polling)
            await asyncio.sleep(0.1)
            start_s = time.monotonic()
            await asyncio.to_thread(publish, own)
            messages = await waiting
        publish_s.append(time.monotonic() - start_s)
        assert len(messages) == 1
    assert min(publish_s) < 1.0
