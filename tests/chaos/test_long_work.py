"""kill -9 in long work: what a worker was told of its note, its time and its message holds."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.parts import LocalQueue, Sidecar
from tests.chaos.world import Http, World, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LEASE_MS = 60_000
SHORT_MS = 1_500
SOON_MS = 3_000


def publish(client: Http, deployment: World, count: int) -> None:
    """Messages, once the broker takes them."""
    path = f"/v1/topics/{deployment.topic}/messages"
    for number in range(count):

        def stored(number: int = number) -> bool:
            return client.post(path, {"msg": f"m{number}"})[0] == 201

        wait_until(stored, "a message to be stored")


def admin(sidecar: Sidecar, method: str, path: str, body: dict[str, object]) -> int:
    """A request to the admin port; the status."""
    asked = urllib.request.Request(  # noqa: S310
        sidecar.admin_url + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
        return int(answer.status)


def dead(client: Http) -> list[dict[str, Any]]:
    """The dead letters."""
    url = f"http://127.0.0.1:{client.sidecar.port}/v1/subscriptions/orders/dead"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return list(json.loads(answer.read())["messages"])


def test_i7_notes_and_the_time_of_a_message_survive_kill_9(folder: Path) -> None:
    """A note that was answered is there; a message that fails for long is given up in its time."""
    local = LocalQueue(folder, partitions=1)
    with world(local, folder) as deployment:
        sidecar = deployment.sidecar("s1")
        client = Http(sidecar)
        publish(client, deployment, 1)
        [message] = client.receive_until(bool, 90, most=1, lease_ms=LEASE_MS)
        first_ms = message["first_seen_ms"]
        for round_ in range(2):
            note = f"round {round_}"
            item = {"lease": message["lease"], "do": "extend", "lease_ms": SHORT_MS, "note": note}
            status, answer = client.post("/v1/settle", {"items": [item]})
            sidecar.kill()
            assert (status, answer["results"][0]["status"]) == (200, "extended")
            sidecar.start()
            client = Http(sidecar)
            [message] = client.receive_until(bool, 90, most=1, lease_ms=LEASE_MS)
            assert (message["note"], message["attempt"]) == (note, round_ + 2)
        client.settle([message["lease"]], "retry", delay_ms=3_600_000)
        # Said while it waits, with some seconds left: the next process has to do it.
        message_ttl_ms = time.time_ns() // 1_000_000 - first_ms + SOON_MS
        path = "/v1/subscriptions/orders"
        assert admin(sidecar, "PATCH", path, {"message_ttl_ms": message_ttl_ms}) == 200
        sidecar.kill()
        sidecar.start()
        client = Http(sidecar)
        wait_until(lambda: dead(client), "the message to be given up", ignoring=(OSError,))
        [letter] = dead(client)
        assert letter["reason"].startswith("older than message_ttl_ms: ")
        assert letter["first_seen_ms"] // 1_000 == first_ms // 1_000
        assert letter["dead_ms"] - first_ms >= message_ttl_ms


def test_a_cancel_that_was_answered_survives_kill_9(folder: Path) -> None:
    """I7: the message is over, and the worker is told so by the next process."""
    local = LocalQueue(folder, partitions=1)
    with world(local, folder) as deployment:
        sidecar = deployment.sidecar("s1")
        client = Http(sidecar)
        publish(client, deployment, 1)
        [message] = client.receive_until(bool, 90, most=1, lease_ms=60_000)
        path = f"/v1/subscriptions/orders/messages/{message['id']}/cancel"
        status = admin(sidecar, "POST", path, {"reason": "wrong"})
        sidecar.kill()
        assert status == 200
        sidecar.start()
        client = Http(sidecar)

        def told() -> bool:
            status, answer = client.post(f"/v1/leases/{message['lease']}/extend", {})
            assert status in {410, 503}, answer
            return status == 410 and answer.get("cancelled", {}).get("reason") == "wrong"

        wait_until(told, "the worker to be told")
        wait_until(lambda: dead(client), "the dead letter", ignoring=(OSError,))
        # Twice, if the kill came after the letter was stored and before that was known.
        assert {each["message"] for each in dead(client)} == {message["id"]}
        assert client.quiet(1.0) == []
