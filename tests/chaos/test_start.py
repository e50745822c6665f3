"""A sidecar that is started while something is away waits for it, and is ready once it is there."""

import time
from pathlib import Path

import pytest

from tests.chaos.world import Http, KafkaAt, produce, world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

# Longer than a question to the broker may take: the first try has failed by then.
AWAY_S = 6.0


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_start_while_the_broker_and_the_store_are_away(
    at_kafka: KafkaAt, folder: Path, how: str
) -> None:
    """I7, design section 8: it runs on, says 503, and goes to work by itself."""
    with world(at_kafka, folder) as deployment:
        produce(at_kafka.kafka, deployment.topic, 10)
        sidecar = deployment.sidecar("s1", start=False)
        store = deployment.store
        assert store is not None
        (at_kafka.kill if how == "killed" else at_kafka.freeze)()
        (store.kill if how == "killed" else store.freeze)()
        sidecar.launch()
        end = time.monotonic() + AWAY_S
        while time.monotonic() < end:
            assert sidecar.running, sidecar.tail()
            time.sleep(0.1)
        (store.start if how == "killed" else store.thaw)()
        time.sleep(AWAY_S)
        assert sidecar.running, sidecar.tail()
        (at_kafka.start if how == "killed" else at_kafka.thaw)()
        sidecar.wait_ready(150)
        found = Http(sidecar).receive_until(lambda got: len(got) >= 10, 90)
        assert set(Http(sidecar).settle([each["lease"] for each in found])) == {"acked"}
