"""A restart with 100,000 finished messages above one stuck head does not fetch them again.

Measured where it can't lie: all traffic from the broker passes a counting proxy.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.world import Http, KafkaAt, offsets, produce, world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(480)]

COUNT = 100_000
VALUE_BYTES = 1024
Figure = Callable[[str, float], None]


def test_finished_messages_are_not_fetched_again(
    at_kafka: KafkaAt, folder: Path, figure: Figure
) -> None:
    """100 MiB lie above the head. One fetch of a partition brings 1 MiB; the client has some of
    them under way before the reader jumps from the head to the end (4 were seen).
    """
    at_kafka.proxied = True
    proxy = at_kafka.kafka.proxies[0]
    with world(at_kafka, folder, embedded=True, lease_ms=900_000) as deployment:
        produce(at_kafka.kafka, deployment.topic, COUNT, pad=VALUE_BYTES - 30)
        sidecar = deployment.sidecar("s1")
        client = Http(sidecar, timeout_s=60)
        began_bytes = proxy.bytes_down
        held: dict[int, str] = {}
        end = time.monotonic() + 300
        while len(held) < COUNT:
            assert time.monotonic() < end, len(held)
            found = client.receive(most=1000)
            held |= {each: m["lease"] for each, m in zip(offsets(found), found, strict=True)}
            done = [lease for at, lease in held.items() if at != 0 and lease]
            assert set(client.settle(done)) <= {"acked"}
            held |= {at: "" for at in held if at != 0}
        assert proxy.bytes_down - began_bytes > COUNT * VALUE_BYTES * 0.9, "the proxy counts"
        sidecar.kill()
        before = proxy.bytes_down
        began = time.monotonic()
        sidecar.start()
        again = Http(sidecar)
        produce(at_kafka.kafka, deployment.topic, 10, first=COUNT)
        found = again.receive_until(lambda got: len(got) >= 10, 90)
        seconds = time.monotonic() - began
        assert sorted(offsets(found)) == list(range(COUNT, COUNT + 10))
        fetched = proxy.bytes_down - before
        figure("bytes_after_restart", fetched)
        figure("seconds_to_new_messages", round(seconds, 2))
        assert fetched < 32 * 1024 * 1024
        assert again.settle([held[0]]) == ["acked"], "the head's lease outlived the restart"
