"""What is promised over the end of a sidecar or of the store's data, and for as long as a lease is
extended; on Pulsar and RocketMQ beside their other tests.
"""

from pathlib import Path

import pytest

from ackd_torture.parts import LocalQueue
from tests.chaos.kept import kept_over_a_kill, store_gone_with_the_sidecar
from tests.chaos.world import Http, KafkaAt, long_job, world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.kafka
def test_i2_i7_what_a_killed_sidecar_promised_is_kept_on_kafka(
    at_kafka: KafkaAt, folder: Path
) -> None:
    kept_over_a_kill(at_kafka, folder)


def test_i2_i7_what_a_killed_sidecar_promised_is_kept_on_the_local_queue(folder: Path) -> None:
    kept_over_a_kill(LocalQueue(folder, partitions=1), folder)


def test_store_gone_with_the_sidecar_on_the_local_queue(folder: Path) -> None:
    store_gone_with_the_sidecar(LocalQueue(folder, partitions=1), folder)


def test_i3_a_lease_extended_thirty_times_on_the_local_queue_is_one_delivery(folder: Path) -> None:
    """As with every broker: work that lasts five leases."""
    with world(LocalQueue(folder, partitions=1), folder) as deployment:
        client = Http(deployment.sidecar("s1"))
        client.publish(deployment.topic, 1)
        long_job(client, 3_000, 30)
