"""The 2101 test (I2): one stuck message, a hundred finished ones above it, and something dies.

Offsets 0-2200 are handed out, all are acked but 2101. Whatever is killed: exactly one message comes
back, 2101, when its lease has run out. Peers bring back hundreds (docs/benchmarks.md).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.world import Http, KafkaAt, World, long_job, offsets, produce, world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = 2201
STUCK = 2101
LEASE_MS = 4_000
GRACE = {"grace_ms": 1_000}


def deliver_and_ack_all_but_one(
    deployment: World, at_kafka: KafkaAt, lease_ms: int = LEASE_MS
) -> str:
    """Leaves 2101 leased; returns its lease."""
    produce(at_kafka.kafka, deployment.topic, COUNT)
    client = Http(deployment.sidecar("s1"))
    below = client.receive_until(lambda found: len(found) >= COUNT, 90, lease_ms=300_000)
    assert sorted(offsets(below)) == list(range(COUNT))
    # Its lease is cut short here, so that the test need not wait for the long one.
    leases = dict(zip(offsets(below), (each["lease"] for each in below), strict=True))
    stuck = str(leases.pop(STUCK))
    assert client.settle([stuck], "extend", lease_ms=lease_ms) == ["extended"]
    assert set(client.settle(list(leases.values()))) == {"acked"}
    return stuck


def only_2101_comes_back(client: Http) -> None:
    found = client.receive_until(bool, 90, lease_ms=60_000)
    found += client.quiet(3.0)
    assert messages(found) == [STUCK]
    assert found[0]["attempt"] == 2
    assert client.settle([found[0]["lease"]]) == ["acked"]


def messages(found: Sequence[Mapping[str, Any]]) -> list[int]:
    """Their numbers, as they were published: offsets on brokers that count from 0."""
    return [int(str(each["json"]["msg"]).removeprefix("m")) for each in found]


@pytest.mark.parametrize("embedded", [True, False], ids=["embedded", "external"])
def test_sidecar_killed_and_restarted(at_kafka: KafkaAt, folder: Path, *, embedded: bool) -> None:
    with world(at_kafka, folder, embedded=embedded, store_settings=GRACE) as deployment:
        deliver_and_ack_all_but_one(deployment, at_kafka)
        sidecar = deployment.sidecar("s1")
        sidecar.kill()
        sidecar.start()
        only_2101_comes_back(Http(sidecar))


def test_partition_moves_to_another_sidecar(at_kafka: KafkaAt, folder: Path) -> None:
    with world(at_kafka, folder, store_settings=GRACE) as deployment:
        deliver_and_ack_all_but_one(deployment, at_kafka)
        other = deployment.sidecar("s2")
        deployment.sidecar("s1").kill()
        only_2101_comes_back(Http(other))


def test_broker_killed_and_restarted(at_kafka: KafkaAt, folder: Path) -> None:
    with world(at_kafka, folder, store_settings=GRACE) as deployment:
        deliver_and_ack_all_but_one(deployment, at_kafka)
        at_kafka.kill()
        at_kafka.start()
        only_2101_comes_back(Http(deployment.sidecar("s1")))


def test_store_killed_and_restarted(at_kafka: KafkaAt, folder: Path) -> None:
    with world(at_kafka, folder, store_settings=GRACE) as deployment:
        deliver_and_ack_all_but_one(deployment, at_kafka)
        assert deployment.store is not None
        # AOF everysec: what a killed process had written is in the page cache, not lost.
        deployment.store.kill()
        deployment.store.start()
        only_2101_comes_back(Http(deployment.sidecar("s1")))


def test_open_lease_is_still_good_after_the_restart(at_kafka: KafkaAt, folder: Path) -> None:
    """Design section 8: open leases keep their deadlines and can still be settled; then none."""
    with world(at_kafka, folder, store_settings=GRACE) as deployment:
        # Long enough for a start on a busy machine.
        stuck = deliver_and_ack_all_but_one(deployment, at_kafka, lease_ms=60_000)
        sidecar = deployment.sidecar("s1")
        sidecar.kill()
        sidecar.start()
        client = Http(sidecar)
        assert client.settle([stuck]) == ["acked"]
        assert client.settle([stuck]) == ["already_acked"]
        assert client.quiet(3.0) == []


def test_i3_a_lease_extended_thirty_times_is_one_delivery(at_kafka: KafkaAt, folder: Path) -> None:
    """Work that lasts five leases, longer than a group would wait for a silent consumer."""
    with world(at_kafka, folder) as deployment:
        produce(at_kafka.kafka, deployment.topic, 1)
        long_job(Http(deployment.sidecar("s1")), 3_000, 30)
