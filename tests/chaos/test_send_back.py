"""Send back with a kill -9 at each of its steps: the message comes once, none is lost (R2, R4)."""

import contextlib
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ackd.ports.own_topics import retry_topic
from tests.chaos.dies import MOMENTS
from tests.chaos.world import Http, KafkaAt, World, offsets, produce, world
from tests.support.kafka import Kafka
from tests.support.wait import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

DIES = (sys.executable, "-m", "tests.chaos.dies")
COUNT = 20
STUCK = 7


def quick(
    at_kafka: KafkaAt, folder: Path, command: tuple[str, ...] = ()
) -> contextlib.AbstractContextManager[World]:
    """A deployment in which a message is stuck after three seconds."""
    return world(
        at_kafka,
        folder,
        command=command,
        stuck_after_ms=3_000,
        stuck_min_age_ms=3_000,
        retry_topic_partitions=2,
    )


def copies(kafka: Kafka, deployment: World) -> list[tuple[bytes, bytes]]:
    """(origin, generation) of each record in the group's retry topic."""
    topic = retry_topic(f"{deployment.topic}-group~orders")
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "looks"})
    found: list[tuple[bytes, bytes]] = []
    try:
        for number in (0, 1):
            part = TopicPartition(topic, number, 0)
            _, end = reader.get_watermark_offsets(part, timeout=60)
            if not end:
                continue
            reader.assign([part])
            while True:
                message = reader.poll(60)
                assert message is not None
                headers = dict(message.headers() or [])
                found.append((headers["ackd-origin"], headers["ackd-generation"]))  # type: ignore[arg-type]
                if (message.offset() or 0) + 1 >= end:
                    break
    finally:
        reader.close()
    return found


@pytest.mark.parametrize("moment", MOMENTS)
def test_r2_killed_in_the_middle_of_a_send_back(
    at_kafka: KafkaAt, folder: Path, moment: str
) -> None:
    with quick(at_kafka, folder, DIES) as deployment:
        produce(at_kafka.kafka, deployment.topic, COUNT)
        sidecar = deployment.sidecar("s1", start=False)
        sidecar.folder.mkdir(parents=True)
        (sidecar.folder / "die-at").write_text(moment)
        sidecar.start()
        client = Http(sidecar)
        found = client.receive_until(lambda got: len(got) >= COUNT, 90, lease_ms=60_000)
        leases = dict(zip(offsets(found), (each["lease"] for each in found), strict=True))
        stuck = str(leases.pop(STUCK))
        assert set(client.settle(list(leases.values()))) == {"acked"}
        if moment.startswith("claimed"):
            # The lease must be over before the copy can claim.
            assert client.settle([stuck], "extend", lease_ms=1_500) == ["extended"]
        wait_until(lambda: not sidecar.running, f"to die: {moment}", timeout_s=60)
        sidecar.start()
        client = Http(sidecar)
        if not moment.startswith("claimed"):
            for _ in range(5):
                assert client.settle([stuck], "extend", lease_ms=60_000) == ["extended"]
                assert client.quiet(0.5) == []
            assert client.settle([stuck], "extend", lease_ms=500) == ["extended"]
        again = client.receive_until(bool, 90, lease_ms=60_000)
        assert [(each["id"], each["attempt"]) for each in again] == [
            (f"{deployment.topic}/0/{STUCK}", 2)
        ]
        assert client.quiet(3.0) == []
        assert client.settle([stuck]) == ["lost"]
        assert client.settle([again[0]["lease"]]) == ["acked"]
        assert client.quiet(1.0) == []
        made = copies(at_kafka.kafka, deployment)
        assert len(set(made)) == 1
        # A claim may be quicker than the note that the copy is stored: then the next owner stores
        # it once more, under the same generation, which can't be claimed again.
        counts = {"copied": {2}, "claimed": {1, 2}}
        assert len(made) in counts.get(moment.partition(",")[0], {1})
        assert made[0][0].endswith(f"/{deployment.topic}/0/{STUCK}".encode())


def test_r4_a_lease_extended_30_times_across_a_send_back_and_a_kill(
    at_kafka: KafkaAt, folder: Path
) -> None:
    with quick(at_kafka, folder) as deployment:
        produce(at_kafka.kafka, deployment.topic, COUNT)
        sidecar, other = deployment.sidecar("s1"), deployment.sidecar("s2")
        clients = [Http(sidecar), Http(other)]
        found: list[dict[str, object]] = []
        end = time.monotonic() + 120
        while len(found) < COUNT:
            assert time.monotonic() < end
            found += [each for client in clients for each in client.receive(lease_ms=120_000)]
        leases = {str(each["id"]): str(each["lease"]) for each in found}
        stuck = leases.pop(f"{deployment.topic}/0/{STUCK}")
        assert set(clients[1].settle(list(leases.values()))) == {"acked"}
        for round_ in range(30):
            if round_ == 15:
                sidecar.kill()
            assert clients[1].settle([stuck], "extend", lease_ms=60_000) == ["extended"], round_
            assert clients[1].quiet(0.3) == []
        assert len(copies(at_kafka.kafka, deployment)) == 1
        assert clients[1].settle([stuck], "extend", lease_ms=500) == ["extended"]
        again = clients[1].receive_until(bool, 90, lease_ms=60_000)
        assert [each["id"] for each in again] == [f"{deployment.topic}/0/{STUCK}"]
        assert clients[1].settle([again[0]["lease"]]) == ["acked"]
        assert clients[1].quiet(3.0) == []
