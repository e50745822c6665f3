"""R26: who holds a message is known after a kill -9 of its owner, in the retry topic, too."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ackd_torture.parts import Sidecar
from tests.chaos.world import Http, KafkaAt, World, produce, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(300)]
LEASE_MS = 120_000


def told(sidecar: Sidecar, what: str) -> Any:
    url = f"{sidecar.admin_url}/v1/subscriptions/orders/{what}"
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - a sidecar's
        return json.load(answer)


def held(sidecar: Sidecar, state: str) -> dict[str, Any]:
    """The one message in flight, once it is in this state and somebody is known to hold it."""

    def there() -> list[dict[str, Any]]:
        found = told(sidecar, "in-flight")["messages"]
        return [each for each in found if each["state"] == state and each["holder"]]

    [message] = wait_until(there, f"a message that is {state} with its holder", timeout_s=60)
    return message


def owner(deployment: World) -> tuple[Sidecar, Sidecar]:
    """Who owns the one partition of the topic, and the other one."""
    one, two = deployment.sidecar("s1"), deployment.sidecar("s2")

    def named() -> str:
        rows = told(one, "lag")["partitions"]
        return next((row["owner"] for row in rows if row["topic"] == deployment.topic), "")

    name = wait_until(named, "an owner", timeout_s=60)
    return (one, two) if name == one.name else (two, one)


@pytest.mark.parametrize("moved", [False, True], ids=["in-its-partition", "moved"])
def test_r26_the_holder_is_known_after_a_kill(
    at_kafka: KafkaAt, folder: Path, *, moved: bool
) -> None:
    after_ms = 3_000 if moved else 60_000
    stuck: dict[str, Any] = {"stuck_after_ms": after_ms, "stuck_min_age_ms": min(after_ms, 2_000)}
    with world(at_kafka, folder, **stuck) as deployment:
        dies, lives = owner(deployment)
        produce(at_kafka.kafka, deployment.topic, 1)
        [message] = Http(dies).receive_until(bool, 90, most=1, lease_ms=LEASE_MS)
        state = "waiting_for_lease" if moved else "leased"
        before = held(dies, state)
        store = deployment.store
        assert store is not None

        def written() -> bool:
            keys = [key for key in store.ask("KEYS", "*:t").split() if b"members" not in key]
            return any(key.endswith(b":t") for key in keys)

        wait_until(written, "the record to have the holder")
        dies.kill()
        after = held(lives, state)
        assert (after["holder"], after["id"]) == (before["holder"], before["id"])
        assert Http(lives).settle([message["lease"]]) == ["acked"]
