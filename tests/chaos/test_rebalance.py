"""Rebalances while thousands of leases are open: none lost, none granted twice (I2, I3, I4)."""

from pathlib import Path

import pytest

from tests.chaos.world import Http, KafkaAt, offsets, produce, world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

COUNT = 6_000
PARTITIONS = 6


def test_thousands_of_leases_survive_joins_and_leaves(at_kafka: KafkaAt, folder: Path) -> None:
    """One sidecar grants all; two join, the first leaves in good order, one is killed.

    Then every lease must still be good at whoever is left, and nothing may come again.
    """
    with world(at_kafka, folder, partitions=PARTITIONS, lease_ms=600_000) as deployment:
        produce(at_kafka.kafka, deployment.topic, COUNT)
        first = deployment.sidecar("s1")
        held = Http(first).receive_until(lambda found: len(found) >= COUNT, 90)
        ids = {each["id"] for each in held}
        assert len(held) == len(ids) == COUNT, "none granted twice"
        second, third = deployment.sidecar("s2"), deployment.sidecar("s3")
        assert Http(second).quiet(4.0) == [], "a new owner grants nothing that is leased"
        leases = [each["lease"] for each in held]
        assert set(Http(third).settle(leases[:1000])) == {"acked"}, "any sidecar settles"
        assert first.terminate() == 0
        assert set(Http(second).settle(leases[1000:2000], "extend", lease_ms=600_000)) == {
            "extended"
        }
        third.kill()
        # Others own the partitions now; whatever they do, a live lease stays live.
        assert Http(second).quiet(6.0) == []
        statuses = Http(second).settle(leases[1000:])
        assert {each: statuses.count(each) for each in set(statuses)} == {"acked": COUNT - 1000}
        assert Http(second).quiet(2.0) == []
        assert set(Http(second).settle(leases)) == {"already_acked"}
        assert offsets(held)
