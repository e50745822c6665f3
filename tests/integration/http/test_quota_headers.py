"""Publishers are told the bounds and what is left of them, in RateLimit fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from tests.integration.http.conftest import CONFIG, Sidecar, made_sidecar

TOPIC = "/v1/topics/orders/messages"
ITEM = re.compile(r'"([a-z]+)"((?:;[a-z]+=(?:\d+|"[a-z-]+"))*)')


@pytest.fixture(scope="module")
def bounded() -> Iterator[Sidecar]:
    """A sidecar with small bounds for publishers."""
    publish = "[publish]\nin_flight_max = 5\nidempotency_max = 2\nidempotency_ms = 600000\n"
    with made_sidecar(settings=f"{CONFIG}\n{publish}") as made:
        made.start()
        yield made


def publish(sidecar: Sidecar, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, str]]:
    """One request; (status, headers of the answer)."""
    with closing(HTTPConnection("127.0.0.1", sidecar.port, timeout=60)) as connection:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, dict(answer.getheaders())


def parsed(field: str) -> dict[str, dict[str, str]]:
    """A list of structured fields: names, each with its parameters."""
    found = {}
    for each in field.split(", "):
        match = ITEM.fullmatch(each)
        assert match is not None, each
        pairs = (part.split("=", 1) for part in match[2].split(";")[1:])
        found[match[1]] = dict(pairs)
    return found


def test_every_publish_tells_the_bounds_and_what_is_left(bounded: Sidecar) -> None:
    status, headers = publish(bounded, TOPIC, b"1")
    assert status == 201
    policy = parsed(headers["RateLimit-Policy"])
    assert policy["messages"] == {"q": "5", "qu": '"concurrent-requests"'}
    assert policy["bytes"] == {"q": str(64 << 20), "qu": '"content-bytes"'}
    left = parsed(headers["RateLimit"])
    assert left == {"messages": {"r": "5"}, "bytes": {"r": str(64 << 20)}}
    batch = json.dumps({"messages": [{"json": 1}]}).encode()
    status, headers = publish(bounded, f"{TOPIC}:batch", batch)
    assert (status, parsed(headers["RateLimit"])["messages"]) == (200, {"r": "5"})


def test_a_refusal_has_them_and_when_to_come_back(bounded: Sidecar) -> None:
    batch = json.dumps({"messages": [{"json": 1}] * 6}).encode()
    status, headers = publish(bounded, f"{TOPIC}:batch", batch)
    assert (status, headers["Retry-After"]) == (429, "1")
    assert parsed(headers["RateLimit"])["messages"] == {"r": "5"}


def test_keys_run_out_with_the_time_at_which_there_is_room(bounded: Sidecar) -> None:
    status, headers = publish(bounded, TOPIC, b"1", **{"Idempotency-Key": "k1"})
    assert (status, parsed(headers["RateLimit"])["keys"]["r"]) == (201, "1")
    status, headers = publish(bounded, TOPIC, b"1", **{"Idempotency-Key": "k2"})
    assert (status, parsed(headers["RateLimit"])["keys"]["r"]) == (201, "0")
    policy = parsed(headers["RateLimit-Policy"])["keys"]
    assert policy == {"q": "2", "qu": '"requests"', "w": "600"}
    status, headers = publish(bounded, TOPIC, b"1", **{"Idempotency-Key": "k3"})
    assert status == 429
    keys = parsed(headers["RateLimit"])["keys"]
    assert keys["r"] == "0"
    assert 500 < int(keys["t"]) <= 600
    assert abs(int(headers["Retry-After"]) - int(keys["t"])) <= 1
