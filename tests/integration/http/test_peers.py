"""Two `ackd serve` processes with links between them: one Valkey, one queue, one partition."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.ports import free_port, give_back
from tests.integration.http.conftest import Sidecar, call
from tests.support.paths import remove_run_dir, run_dir
from tests.support.proc import Process
from tests.support.redis import RedisServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]
Json = dict[str, Any]
Answer = tuple[int, Json]
CONFIG = """
identity = "{name}"
state_dir = "{folder}/{name}"

[server]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin_port}"
drain_ms = 1000

[store]
url = "{url}"
prefix = "{prefix}"

[brokers.local]
adapter = "local"
options = {{ path = "{folder}/queue", partitions = 1 }}

[subscriptions.orders]
topics = ["orders"]
start = "earliest"
"""
BASE = "/v1/subscriptions/orders"
BOTH_TOPICS = 1 + 4
"""Partitions of the topic and of its retry topic."""


def process(folder: Path, name: str, url: str) -> Sidecar:
    """Not started yet."""
    port, admin_port = free_port(), free_port()
    config = folder / f"{name}.toml"
    named = {"name": name, "folder": folder, "url": url, "prefix": folder.name}
    config.write_text(CONFIG.format(port=port, admin_port=admin_port, **named))
    argv: list[str | Path] = [sys.executable, "-m", "ackd", "serve", "--config", config]
    made = Process(argv, log_path=folder / f"{name}.log")
    return Sidecar(made, f"127.0.0.1:{port}", port, admin_port, folder)


@pytest.fixture
def pair(valkey: RedisServer) -> Iterator[tuple[Sidecar, Sidecar]]:
    """Two running ones: the one that owns the topic's partition, and the other."""
    folder = run_dir("linked")
    one, two = process(folder, "one", valkey.url), process(folder, "two", valkey.url)
    try:
        one.process.start()
        wait_until(
            lambda: publish(one, "first") == HTTPStatus.CREATED,
            "the topic is there",
            ignoring=(OSError,),
        )
        two.start()
        wait_until(one.ready, "the first one is ready", ignoring=(OSError,))
        drop(one, "first")
        wait_until(
            lambda: len(owners(two)) == BOTH_TOPICS and owners(two) == owners(one),
            "both to know who owns what",
            ignoring=(OSError,),
        )
        yield (one, two) if owners(one)["orders/0"] == "one" else (two, one)
    finally:
        for each in (one, two):
            each.process.kill()
            give_back(each.port, each.admin_port)
        remove_run_dir(folder)


def publish(sidecar: Sidecar, text: str) -> int:
    """The status."""
    return call(sidecar.port, "POST", "/v1/topics/orders/messages", json.dumps(text).encode())[0]


def receive(sidecar: Sidecar, wait_ms: int) -> Answer:
    """Status and answer."""
    body = json.dumps({"max": 1, "wait_ms": wait_ms}).encode()
    return call(sidecar.port, "POST", f"{BASE}/receive", body)


def drop(sidecar: Sidecar, text: str) -> None:
    """Take this message, the only one, wherever it is, and ack it."""

    def taken() -> bool:
        status, answer = receive(sidecar, 1_000)
        assert status == HTTPStatus.OK, answer
        for message in answer["messages"]:
            assert message["json"] == text, message
            assert ack(sidecar, message) == HTTPStatus.OK
        return bool(answer["messages"])

    wait_until(taken, f"the message {text!r}")


def ack(sidecar: Sidecar, message: Json) -> int:
    """The status."""
    return call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/ack")[0]


def owners(sidecar: Sidecar) -> dict[str, str]:
    """Who owns which partition, also of the retry topic."""
    rows = call(sidecar.admin_port, "GET", f"{BASE}/lag")[1].get("partitions", ())
    return {f"{row['topic']}/{row['partition']}": row["owner"] for row in rows}


def waits(sidecar: Sidecar, pool: ThreadPoolExecutor) -> Future[Answer]:
    """A receive that waits for ten seconds."""
    return pool.submit(receive, sidecar, 10_000)


def test_a_process_hands_out_what_another_one_owns(pair: tuple[Sidecar, Sidecar]) -> None:
    owner, other = pair
    with ThreadPoolExecutor(1) as pool:
        waiting = waits(other, pool)
        assert publish(owner, "hello") == HTTPStatus.CREATED
        status, answer = waiting.result()
    assert status == HTTPStatus.OK
    [message] = answer["messages"]
    assert owners(other)["orders/0"] == owners(owner)["orders/0"]
    assert (message["json"], message["attempt"]) == ("hello", 1)
    assert ack(other, message) == HTTPStatus.OK
    assert receive(owner, 200)[1]["messages"] == []


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_the_owner_ends_while_a_receive_waits_there(
    pair: tuple[Sidecar, Sidecar], how: str
) -> None:
    """The receive is answered as if nothing was, and the other takes the partition over."""
    owner, other = pair
    with ThreadPoolExecutor(1) as pool:
        waiting = waits(other, pool)
        if how == "SIGTERM":
            owner.process.stop()
        else:
            owner.process.kill()
        assert publish(other, "after") == HTTPStatus.CREATED
        status, answer = waiting.result()
    assert status == HTTPStatus.OK, answer
    if not answer["messages"]:
        drop(other, "after")
        return
    [message] = answer["messages"]
    assert (message["json"], message["attempt"]) == ("after", 1)
    assert ack(other, message) == HTTPStatus.OK


VIEWS = ("explain", "lag", "in-flight", "messages")
ASKED_S = 2.0
"""For how long a question waits for an owner."""


@pytest.mark.alone  # within a second and a half the other sidecar calls it dead
def test_a_frozen_owner_is_named_and_holds_no_view_up(pair: tuple[Sidecar, Sidecar]) -> None:
    """What the store and the broker know is told all the same: where a message is, with its holder;
    dead letters; operations.
    """
    owner, other = pair
    name = owners(other)["orders/0"]
    assert publish(owner, "held") == HTTPStatus.CREATED
    body = json.dumps({"max": 1, "wait_ms": 10_000, "lease_ms": 60_000}).encode()
    status, answer = call(other.port, "POST", f"{BASE}/receive", body, Ackd_Worker="worker-7")
    [message] = answer["messages"]
    at = f"{BASE}/messages/{message['id']}"

    def ask(path: str) -> tuple[float, int, Json]:
        began = time.monotonic()
        status, answer = call(other.admin_port, "GET", path)
        return time.monotonic() - began, status, answer

    wait_until(lambda: "worker-7" in ask(at)[2]["holder"], "the holder to be written")
    wait_until(lambda: ask(at)[2]["history"], "the delivery to be written")
    paths = [*(f"{BASE}/{view}" for view in VIEWS), at, f"{BASE}/dead", "/v1/operations"]
    with ThreadPoolExecutor(len(paths)) as pool:
        owner.process.freeze()
        try:
            answers = dict(zip(paths, pool.map(ask, paths), strict=True))
        finally:
            owner.process.thaw()
    for path, (took_s, status, answer) in answers.items():
        assert status == HTTPStatus.OK, (path, answer)
        assert took_s < ASKED_S + 2, path
        if path.rpartition("/")[2] not in ("dead", "operations"):
            assert list(answer["missing"]) == [name], path
            assert name in answer["missing"][name], path
    found = answers[at][2]
    # The other one may have taken the partition over meanwhile.
    assert (found["state"], found["attempt"]) == ("leased", 1)
    assert "worker-7" in found["holder"]
    [row] = [each for each in answers[f"{BASE}/lag"][2]["partitions"] if each["topic"] == "orders"]
    assert (row["owner"], row["watermark"]) == (name, -1)
    wait_until(lambda: not ask(f"{BASE}/lag")[2]["missing"], "all to answer again")
    assert ack(other, message) == HTTPStatus.OK
