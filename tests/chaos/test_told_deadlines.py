"""What is told as a deadline is the deadline, also after the store came back slowly (I4)."""

import time
from pathlib import Path

import pytest

from ackd_torture.parts import LocalQueue
from tests.chaos.world import Http, world

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(240)]

LEASE_MS = 60_000
SLOW_S = 1.5


def lag_ms(client: Http, topic: str) -> float:
    """How long before the receive was asked a lease began, by the deadline that it is told."""
    assert client.post(f"/v1/topics/{topic}/messages", {"msg": "m"})[0] in {200, 201}
    end = time.monotonic() + 20
    while time.monotonic() < end:
        asked_ms = time.time_ns() / 1_000_000
        for message in client.receive(most=1, lease_ms=LEASE_MS):
            assert client.settle([message["lease"]]) == ["acked"]
            return asked_ms - float(message["deadline_ms"] - LEASE_MS)
    raise AssertionError("no message came")


def test_told_deadlines_do_not_lag_after_the_store_came_back_slowly(folder: Path) -> None:
    """R23: a new run of the server that answers late has no clock that jumped.

    The call that is under way at the kill makes the sidecar read the record again as soon as the
    store can be reached; that read then waits while the store stands still.
    """
    local = LocalQueue(folder, partitions=1)
    with world(local, folder, store_settings={"grace_ms": 500}) as deployment:
        store, client = deployment.store, Http(deployment.sidecar("s1"))
        assert store is not None
        assert lag_ms(client, deployment.topic) < 5
        client.post(f"/v1/topics/{deployment.topic}/messages", {"msg": "held"})
        held = client.receive_until(bool, 90, most=1, lease_ms=LEASE_MS)
        store.freeze()
        brief = Http(deployment.sidecar("s1"), timeout_s=0.3)
        items = [{"lease": held[0]["lease"], "do": "extend", "lease_ms": LEASE_MS}]
        assert brief.post("/v1/settle", {"items": items})[0] == 0, "under way"
        store.kill()
        store.start()
        store.freeze()
        time.sleep(SLOW_S)
        store.thaw()
        assert lag_ms(client, deployment.topic) < 5
