"""A redrive with a kill -9 at each of its steps: another sidecar ends it, each message comes once,
none is lost (R2, R29).
"""

import contextlib
import http.client
import json
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.dies import REDRIVE_MOMENTS
from tests.chaos.world import Http, KafkaAt, offsets, produce, ready, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(480)]

DIES = (sys.executable, "-m", "tests.chaos.dies")
COUNT = 230
BASE = "/v1/subscriptions/orders/dead"


def ask(sidecar: Sidecar, method: str, path: str, body: object = None) -> Any:
    """One admin call; None without an answer."""
    raw = None if body is None else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", sidecar.admin_port, timeout=60)
    with contextlib.closing(connection):
        try:
            connection.request(method, path, raw, {"content-type": "application/json"})
            answer = connection.getresponse()
            return json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            return None


def told(sidecar: Sidecar, method: str, path: str, body: object = None) -> Any:
    """The answer of a call that may be repeated: again while there is none, or it is 503."""

    def answer() -> Any:
        found = ask(sidecar, method, path, body)
        return found if found and found.get("status") != HTTPStatus.SERVICE_UNAVAILABLE else None

    return wait_until(answer, f"{sidecar.name} to answer {method} {path}")


def listed(sidecar: Sidecar, count: int) -> bool:
    """Whether so many are listed; AssertionError, with what was said instead, if not."""
    found = dead(sidecar)
    assert found == count, (found, ready(sidecar), sidecar.tail())
    return True


def dead(sidecar: Sidecar) -> int:
    """How many are listed, on all pages (one is short when the time was up); -1 if not told."""
    found = 0
    cursor: str | None = ""
    while cursor is not None:
        behind = f"&cursor={cursor}" if cursor else ""
        page = ask(sidecar, "GET", f"{BASE}?max=1000{behind}")
        if not page or "messages" not in page:
            return -1
        found, cursor = found + len(page["messages"]), page["cursor"]
    return found


@pytest.mark.parametrize("moment", REDRIVE_MOMENTS)
def test_r29_killed_in_the_middle_of_a_redrive(
    at_kafka: KafkaAt, folder: Path, moment: str
) -> None:
    with world(at_kafka, folder, command=DIES, retry_topic_partitions=2) as deployment:
        produce(at_kafka.kafka, deployment.topic, COUNT)
        first = deployment.sidecar("s1", start=False)
        first.folder.mkdir(parents=True)
        (first.folder / "die-at").write_text(moment)
        first.start()
        client = Http(first)
        found = client.receive_until(lambda got: len(got) >= COUNT, 90, lease_ms=300_000)
        assert set(client.settle([str(each["lease"]) for each in found], "dead")) == {"dead"}
        wait_until(lambda: listed(first, COUNT), "all to be listed", ignoring=(AssertionError,))
        second = deployment.sidecar("s2")
        began = ask(first, "POST", f"{BASE}:redrive", {"confirm": "orders"})
        wait_until(lambda: not first.running, f"to die: {moment}", timeout_s=60)
        other = Http(second)
        again = other.receive_until(lambda got: len(got) >= COUNT, 90, lease_ms=300_000)
        assert sorted(offsets(again)) == list(range(COUNT))
        assert {each["attempt"] for each in again} == {1}
        assert other.quiet(3.0) == []
        wait_until(lambda: listed(second, 0), "none to be listed", ignoring=(AssertionError,))
        if began is not None:
            path = f"/v1/operations/{began['id']}"
            wait_until(lambda: ask(second, "GET", path)["state"] == "done", "its end")
            ended = ask(second, "GET", path)
            counts = {name: ended[name] for name in ("state", "moved", "failed", "skipped")}
            assert counts == {"state": "done", "moved": COUNT, "failed": 0, "skipped": 0}
        assert set(other.settle([str(each["lease"]) for each in again])) == {"acked"}
