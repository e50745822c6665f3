"""A seek with a kill -9 at one step after the other: the next sidecar goes on, what is acked after
it does not come again, live leases stay, none is lost (I1-I3, R8).
"""

from pathlib import Path
from typing import Any

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.dies import SEEK_MOMENTS
from tests.chaos.test_redrive import DIES, ask
from tests.chaos.world import Http, KafkaAt, World, produce, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(480)]

COUNT = 40
BASE = "/v1/subscriptions/orders"


def dying(deployment: World, name: str, moment: str, *, soon: bool = False) -> Sidecar:
    """A sidecar that kills itself when it comes to this moment. `soon`: it may never be ready."""
    sidecar = deployment.sidecar(name, start=False)
    sidecar.folder.mkdir(parents=True)
    (sidecar.folder / "die-at").write_text(moment)
    sidecar.launch() if soon else sidecar.start()
    return sidecar


def died(sidecar: Sidecar) -> None:
    """Wait for it."""
    wait_until(lambda: not sidecar.running, f"{sidecar.name} to die", timeout_s=120)


def leases(messages: list[dict[str, Any]]) -> dict[str, str]:
    """By the message's id."""
    return {str(each["id"]): str(each["lease"]) for each in messages}


def test_r8_killed_at_every_step_of_a_seek(at_kafka: KafkaAt, folder: Path) -> None:
    with world(at_kafka, folder, partitions=2, command=DIES, stuck_after_ms=500) as deployment:
        produce(at_kafka.kafka, deployment.topic, COUNT)
        moments = list(SEEK_MOMENTS)
        first = dying(deployment, "s0", moments[0])
        client = Http(first)
        own = leases(client.receive_until(lambda got: len(got) >= COUNT, 90, lease_ms=900_000))
        # Of each kind one: waits as a copy, its copy is under lease, is forwarded under its lease.
        waits, copied, forwarded, *rest = own
        asked = client.settle([own[waits], own[copied]], "retry", delay_ms=2_000)
        assert asked == ["retrying"] * 2
        again = client.receive_until(lambda got: len(got) >= 2, 90, lease_ms=900_000)
        copies = leases(again)
        assert client.settle([copies[waits]], "retry", delay_ms=60_000) == ["retrying"]
        assert set(client.settle([own[each] for each in rest])) == {"acked"}
        assert ask(first, "POST", f"{BASE}/pause", {})["state"] == "paused"
        began = ask(first, "POST", f"{BASE}/seek", {"to": "earliest"})
        died(first)
        for number, moment in enumerate(moments[1:], 1):
            died(dying(deployment, f"s{number}", moment))
        last = deployment.sidecar("last")
        other = Http(last)
        wait_until(lambda: ask(last, "GET", BASE)["state"] == "paused", "it to be paused")
        # Resumed at once: what is left of the operation holds the group by itself.
        ask(last, "POST", f"{BASE}/resume", {})
        expected = COUNT - 2
        again = other.receive_until(lambda got: len(got) >= expected, 90, lease_ms=300_000)
        assert sorted(str(each["id"]) for each in again) == sorted([waits, *rest])
        assert {each["attempt"] for each in again} == {1}
        assert set(other.settle(list(leases(again).values()))) == {"acked"}
        assert other.settle([copies[copied], own[forwarded]]) == ["acked", "acked"]
        assert other.quiet(3.0) == []
        done = ask(last, "GET", f"/v1/operations/{began['id']}") if began else None
        assert done is None or (done["state"], done["moved"], done["total"]) == ("done", 2, 2)
        progress = ask(last, "GET", f"{BASE}/progress")["partitions"]
        assert sum(each["offset"] for each in progress) == COUNT
        assert {each["epoch"] for each in progress} == {1}
