"""Dead letters on RocketMQ over HTTP: a real sidecar lists, shows, redrives and purges them."""

from pathlib import Path
from typing import Any

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.test_redrive import BASE, ask, told
from tests.chaos.world import Http, world
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.part import RocketMQAt
from tests.support.wait import wait_until

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 4
LONG_MS = 240_000


def operation(sidecar: Sidecar, verb: str, body: dict[str, Any]) -> None:
    """Carry out a redrive or purge of `ids`; all of them move."""
    begun = ask(sidecar, "POST", f"{BASE}:{verb}", body)
    path = f"/v1/operations/{begun['id']}"
    wait_until(lambda: told(sidecar, "GET", path)["state"] == "done", f"{verb}: {begun}")
    ended = told(sidecar, "GET", path)
    assert (ended["moved"], ended["failed"]) == (len(body["ids"]), 0), ended


def listed(sidecar: Sidecar) -> dict[str, str]:
    """Body of each dead letter -> its id, page by page."""
    found: dict[str, str] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = told(sidecar, "GET", f"{BASE}?max=3" + (f"&cursor={cursor}" if cursor else ""))
        for each in page["messages"]:
            assert (each["state"], each["last_error"]) == ("dead", "planted")
            letter = told(sidecar, "GET", f"{BASE}/{each['id']}")
            assert letter["message"] == each["message"]
            found[letter["json"]["msg"]] = each["id"]
        cursor = page["cursor"]
    return found


def test_dead_letters_are_listed_redriven_and_purged_over_http(
    rocketmq: RocketMQ, folder: Path
) -> None:
    with world(RocketMQAt(rocketmq), folder, lease_ms=LONG_MS) as deployment:
        sidecar = deployment.sidecar()
        client = Http(sidecar)
        client.publish(deployment.topic, COUNT)
        first = client.receive_until(lambda got: len(got) >= COUNT, 90)
        dead = client.settle([each["lease"] for each in first], "dead", reason="planted")
        assert dead == ["dead"] * COUNT
        wait_until(lambda: len(listed(sidecar)) == COUNT, "all to be listed", timeout_s=60)
        ids = listed(sidecar)
        assert set(ids) == {"m0", "m1", "m2", "m3"}
        dry = told(sidecar, "POST", f"{BASE}:purge", {"dry_run": True})
        assert (dry["matched"], dry["complete"]) == (COUNT, True)
        operation(sidecar, "redrive", {"ids": [ids["m0"]], "to": "group"})
        operation(sidecar, "redrive", {"ids": [ids["m1"]], "to": "origin"})
        back = client.receive_until(lambda got: len(got) >= 2, 90)
        assert {each["json"]["msg"] for each in back} == {"m0", "m1"}
        assert client.settle([each["lease"] for each in back]) == ["acked"] * 2
        refused = ask(sidecar, "POST", f"{BASE}:purge", {"ids": [ids["m2"]]})
        assert "confirm" in refused["detail"]
        operation(sidecar, "purge", {"ids": [ids["m2"]], "confirm": "orders"})
        assert listed(sidecar) == {"m3": ids["m3"]}
        gone = ask(sidecar, "GET", f"{BASE}/{ids['m2']}")
        assert gone["type"] == "/problems/unknown-dead-letter"
        assert client.quiet(1) == []
