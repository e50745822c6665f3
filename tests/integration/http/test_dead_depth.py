"""How many dead letters there are, and how old, in the metrics of a real sidecar."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from tests.integration.http.conftest import (
    Sidecar,
    call,
    made_sidecar,
    start_with_topics,
)
from tests.support.wait import wait_until

BASE = "/v1/subscriptions/images"
LOOKS_S = 90
"""Longer than two looks are apart."""


@pytest.fixture(scope="module")
def own() -> Iterator[Sidecar]:
    with made_sidecar() as made:
        start_with_topics(made)
        yield made


def depth(sidecar: Sidecar) -> float:
    return gauge(sidecar, "ackd_dead_letter_depth")


def gauge(sidecar: Sidecar, name: str) -> float:
    """A gauge of `images`; -1 without it."""
    connection = HTTPConnection("127.0.0.1", sidecar.admin_port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf'^{name}{{subscription="images"}} (\S+)$', text, re.MULTILINE)
    return -1.0 if found is None else float(found[1])


def dead_letter(sidecar: Sidecar, count: int) -> None:
    left = count
    for _ in range(count):
        assert call(sidecar.port, "POST", "/v1/topics/images/messages", b"1")[0] == 201

    def given_up() -> bool:
        nonlocal left
        body = json.dumps({"max": left, "wait_ms": 1000}).encode()
        for message in call(sidecar.port, "POST", f"{BASE}/receive", body)[1]["messages"]:
            assert call(sidecar.port, "POST", f"/v1/leases/{message['lease']}/dead")[0] == 200
            left -= 1
        return left == 0

    wait_until(given_up, "all are given up", timeout_s=60)


@pytest.mark.slow
def test_depth_and_age_follow_the_dead_letters(own: Sidecar) -> None:
    dead_letter(own, 3)
    wait_until(lambda: depth(own) == 3, "three letters", timeout_s=LOOKS_S)
    first_s = gauge(own, "ackd_oldest_dead_letter_age_seconds")
    assert 0 <= first_s < LOOKS_S
    ids = [each["id"] for each in call(own.admin_port, "GET", f"{BASE}/dead")[1]["messages"]]
    some = json.dumps({"ids": ids[:2], "confirm": "images"}).encode()
    assert call(own.admin_port, "POST", f"{BASE}/dead:purge", some)[0] == 202
    wait_until(lambda: depth(own) == 1, "one letter", timeout_s=LOOKS_S)
    assert gauge(own, "ackd_oldest_dead_letter_age_seconds") > first_s
