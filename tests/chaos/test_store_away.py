"""Store or broker away: clear answers, no false yes, and work goes on afterwards (I7)."""

import time
from pathlib import Path

import pytest

from tests.chaos.world import Http, KafkaAt, produce, world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]


def test_settle_without_the_store_is_503_and_the_lease_is_still_good(
    at_kafka: KafkaAt, folder: Path
) -> None:
    """I7: never 200 for an ack that is not durable; after the outage there is a grace (R23)."""
    with world(
        at_kafka, folder, store_settings={"timeout_ms": 2_000, "grace_ms": 30_000}
    ) as deployment:
        produce(at_kafka.kafka, deployment.topic, 20)
        client = Http(deployment.sidecar("s1"))
        # Leases that end while the store is away.
        held = client.receive_until(lambda found: len(found) >= 20, 90, lease_ms=6_000)
        leases = [each["lease"] for each in held]
        assert deployment.store is not None
        deployment.store.kill()
        items = [{"lease": lease, "do": "ack"} for lease in leases]
        last_ms = max(each["deadline_ms"] for each in held)
        while time.time_ns() // 1_000_000 < last_ms + 500:
            status, answer = client.post("/v1/settle", {"items": items})
            assert status == 503, answer
            assert int(client.headers["retry-after"]) >= 1
            assert answer["type"]
            status, answer = client.post(f"/v1/leases/{leases[0]}/ack", {})
            assert status == 503, answer
            time.sleep(0.1)
        deployment.store.start()
        found: list[str] = []
        began = time.monotonic()
        while not found:
            status, answer = client.post("/v1/settle", {"items": items})
            assert status in {200, 503}
            if status == 200:
                found = [each["status"] for each in answer["results"]]
            assert time.monotonic() - began < 60
        assert set(found) <= {"acked", "already_acked"}, "the grace lets late acks in"
        assert client.quiet(6.0) == []


def test_acks_go_on_without_the_broker(at_kafka: KafkaAt, folder: Path) -> None:
    """Design section 8: broker frozen, then killed; acks keep working, nothing is acked again."""
    with world(at_kafka, folder) as deployment:
        produce(at_kafka.kafka, deployment.topic, 60)
        client = Http(deployment.sidecar("s1"))
        held = client.receive_until(lambda found: len(found) >= 60, 90, lease_ms=600_000)
        leases = [each["lease"] for each in held]
        at_kafka.freeze()
        assert set(client.settle(leases[:20])) == {"acked"}
        at_kafka.thaw()
        at_kafka.kill()
        assert set(client.settle(leases[20:40])) == {"acked"}
        status, answer = client.post(
            f"/v1/topics/{deployment.topic}/messages", {"msg": "while it is away"}
        )
        assert status in {0, 503, 504}, (status, answer)
        deployment.sidecar("s1").kill()
        at_kafka.start()
        deployment.sidecar("s1").start()
        assert set(Http(deployment.sidecar("s1")).settle(leases[40:])) == {"acked"}
        produce(at_kafka.kafka, deployment.topic, 5, first=100)
        again = Http(deployment.sidecar("s1")).receive_until(lambda found: len(found) >= 5, 90)
        names = {each["json"]["msg"] for each in again}
        # The publish that had no clear answer may have been stored: that is what unclear means.
        assert names - {"while it is away"} == {f"m{number}" for number in range(100, 105)}
