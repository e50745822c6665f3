"""A seek with a kill -9 at each of its steps: another sidecar ends it, what is acked after it does
not come again, live leases stay, none is lost (I1-I3, R8).
"""

from pathlib import Path

import pytest

from tests.chaos.dies import SEEK_MOMENTS
from tests.chaos.test_redrive import DIES, ask
from tests.chaos.world import Http, KafkaAt, offsets, produce, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]

COUNT = 40
BASE = "/v1/subscriptions/orders"


def by_id(messages: list[dict[str, object]]) -> list[str]:
    """Ids, sorted; one that came twice is there twice."""
    return sorted(str(each["id"]) for each in messages)


@pytest.mark.parametrize("moment", SEEK_MOMENTS)
def test_r8_killed_in_the_middle_of_a_seek(at_kafka: KafkaAt, folder: Path, moment: str) -> None:
    with world(at_kafka, folder, partitions=2, command=DIES, stuck_after_ms=500) as deployment:
        produce(at_kafka.kafka, deployment.topic, COUNT)
        first = deployment.sidecar("s1", start=False)
        first.folder.mkdir(parents=True)
        (first.folder / "die-at").write_text(moment)
        first.start()
        client = Http(first)
        found = client.receive_until(lambda got: len(got) >= COUNT, 60, lease_ms=120_000)
        leases = {str(each["id"]): str(each["lease"]) for each in found}
        # Of each kind one: waits as a copy, its copy is under lease, is parked under its lease.
        waits, copied, parked, *rest = leases
        assert set(client.settle([leases[waits], leases[copied]], "retry", delay_ms=2_000)) == {
            "retrying"
        }
        again = client.receive_until(lambda got: len(got) >= 2, 60, lease_ms=120_000)
        copies = {str(each["id"]): str(each["lease"]) for each in again}
        assert client.settle([copies[waits]], "retry", delay_ms=20_000) == ["retrying"]
        assert set(client.settle([leases[each] for each in rest])) == {"acked"}
        second = deployment.sidecar("s2")
        assert ask(first, "POST", f"{BASE}/pause", {})["state"] == "paused"
        began = ask(first, "POST", f"{BASE}/seek", {"to": "earliest"})
        wait_until(lambda: not first.running, f"to die: {moment}", timeout_s=30)
        other = Http(second)
        # Resumed at once: the operation holds the group until it has ended.
        ask(second, "POST", f"{BASE}/resume", {})
        expected = COUNT - 2
        again = other.receive_until(lambda got: len(got) >= expected, 60, lease_ms=120_000)
        assert by_id(again) == sorted([waits, *rest])
        assert {each["attempt"] for each in again} == {1}
        assert set(other.settle([str(each["lease"]) for each in again])) == {"acked"}
        assert other.settle([copies[copied], leases[parked]]) == ["acked", "acked"]
        assert offsets(other.quiet(4.0)) == []
        if began is not None:
            done = ask(second, "GET", f"/v1/operations/{began['id']}")
            assert (done["state"], done["moved"], done["total"]) == ("done", 2, 2)
        progress = ask(second, "GET", f"{BASE}/progress")
        assert sum(each["offset"] for each in progress["partitions"]) == COUNT
        assert {each["epoch"] for each in progress["partitions"]} == {1}
