"""The first and the last error of a message outlive every kill -9: they are on its dead letter.

They are in the store with the settles that said them, whoever was told; whoever makes the copy
reads them there.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.world import Http, KafkaAt, produce, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]
Found = list[dict[str, Any]]


def dead_letters(client: Http) -> Found:
    """All of them, as soon as there is one. 503 says to ask again: the topic is just being made."""

    def look() -> Found:
        url = f"http://127.0.0.1:{client.sidecar.port}/v1/subscriptions/orders/dead"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                found: Found = json.load(answer)["messages"]
                return found
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return []

    return wait_until(look, "a dead letter", timeout_s=90)


def from_either(clients: list[Http], within_s: float = 90) -> tuple[dict[str, Any], Http]:
    """The next message, and who gave it: the owner of the one partition."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        for client in clients:
            for message in client.receive(most=1, wait_ms=300, lease_ms=120_000):
                return message, client
    raise AssertionError("no message came")


def check(client: Http, message: dict[str, Any]) -> None:
    """The dead letter of this message has both errors; so has a second one, if a kill left it."""
    for letter in dead_letters(client):
        told: Callable[[str], object] = letter.get
        assert (told("message"), told("reason")) == (message["id"], "no shop")
        assert (told("first_error"), told("last_error")) == ("no disk", "no shop")


def test_killed_between_the_failure_and_the_dead_letter(at_kafka: KafkaAt, folder: Path) -> None:
    """The restarted sidecar knows what was said to the killed one."""
    with world(at_kafka, folder) as deployment:
        produce(at_kafka.kafka, deployment.topic, 1)
        sidecar = deployment.sidecar("s1")
        client = Http(sidecar)
        [message] = client.receive_until(bool, 90, most=1, lease_ms=120_000)
        retry = client.settle([message["lease"]], "retry", delay_ms=1, reason="no disk")
        assert retry == ["retrying"]
        sidecar.kill()
        sidecar.start()
        [again] = client.receive_until(bool, 90, most=1, lease_ms=120_000)
        assert (again["id"], again["attempt"]) == (message["id"], 2)
        assert client.settle([again["lease"]], "dead", reason="no shop") == ["dead"]
        check(client, message)


def test_said_to_sidecars_that_are_killed(at_kafka: KafkaAt, folder: Path) -> None:
    """The owner hears the first and dies, another one hears the last and dies: the successor of the
    first, which heard nothing, makes the dead letter.
    """
    with world(at_kafka, folder) as deployment:
        produce(at_kafka.kafka, deployment.topic, 1)
        clients = [Http(deployment.sidecar(name)) for name in ("s1", "s2")]
        message, owner = from_either(clients)
        retry = owner.settle([message["lease"]], "retry", delay_ms=1, reason="no disk")
        assert retry == ["retrying"]
        owner.sidecar.kill()
        owner.close()
        [successor] = [client for client in clients if client is not owner]
        [again] = successor.receive_until(bool, 90, most=1, lease_ms=120_000)
        assert (again["id"], again["attempt"]) == (message["id"], 2)
        owner.sidecar.start()
        killed = owner.settle([again["lease"]], "dead", reason="no shop")
        owner.sidecar.kill()
        assert killed == ["dead"]
        check(successor, message)
