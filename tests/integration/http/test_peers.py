"""Two `ackd serve` processes with links between them: one Valkey, one queue, one partition."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus

import pytest

from tests.integration.http.conftest import Sidecar, call
from tests.integration.http.linked_processes import (
    BASE,
    Answer,
    Json,
    ack,
    drop,
    linked_pair,
    owners,
    publish,
    receive,
)
from tests.support.redis import RedisServer
from tests.support.wait import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]
VIEWS = ("explain", "lag", "in-flight", "messages")
ASKED_S = 2.0
"""For how long a question waits for an owner."""


@pytest.fixture
def pair(valkey: RedisServer) -> Iterator[tuple[Sidecar, Sidecar]]:
    """The one that owns the topic's partition, and the other; no messages."""
    with linked_pair(valkey.url) as found:
        drop(found.owner, "first")
        yield found.owner, found.other


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
