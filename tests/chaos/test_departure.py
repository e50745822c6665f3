"""SIGTERM of the sidecar that owns the only partition, while its application has a lease open: the
others have the partition at once, and the application is served on until it has settled.
"""

import time
from pathlib import Path

import pytest

from ackd_torture.child import BrokerPart
from ackd_torture.parts import LocalQueue, Sidecar
from tests.chaos.judged import told
from tests.chaos.working import working
from tests.chaos.world import Http, KafkaAt, ready, world
from tests.support.wait import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

GAP_S = 1.0
OWNED = "ackd_watermark_offset{"
STEADY_S = 3.0
HELD_S = 4.0
"""How long the application works on after the signal."""
DRAIN_S = 40
SOON_S = 15
"""With its last settle a sidecar ends, long before its time is over."""


@pytest.mark.kafka
def test_nobody_waits_for_the_open_lease_of_one_that_stops_on_kafka(
    at_kafka: KafkaAt, folder: Path
) -> None:
    _one_of_three_stops(at_kafka, folder)


def test_nobody_waits_for_the_open_lease_of_one_that_stops(folder: Path) -> None:
    _one_of_three_stops(LocalQueue(folder), folder)


def _owned(sidecars: list[Sidecar]) -> list[set[str]]:
    """The partitions of each sidecar, as labels of a metric."""
    lines = [told(each, "/metrics").splitlines() for each in sidecars]
    return [{at.rsplit(" ", 1)[0] for at in of if at.startswith(OWNED)} for of in lines]


def _settled_owner(sidecars: list[Sidecar], topic: str) -> Sidecar:
    """Who has the topic's partition when the group has settled after the three starts.

    librdkafka joins a group once a second at most, so a stop in the middle of a rebalance waits for
    rounds that no steady group has.
    """
    before: list[set[str]] = []
    since = time.monotonic()

    def settled() -> bool:
        nonlocal before, since
        owned = _owned(sidecars)
        if owned != before:
            before, since = owned, time.monotonic()
        return time.monotonic() - since > STEADY_S

    wait_until(settled, "no partition changes hands")
    [owner] = [
        each
        for each, owned in zip(sidecars, before, strict=True)
        if any(f'topic="{topic}"' in of for of in owned)
    ]
    return owner


def _one_of_three_stops(broker: BrokerPart, folder: Path) -> None:
    with world(broker, folder, lease_ms=60_000) as deployment:
        deployment.drain_ms = DRAIN_S * 1000
        sidecars = [deployment.sidecar(f"s{each}") for each in (1, 2, 3)]
        with working(sidecars, deployment.topic) as work:
            wait_until(lambda: len({who for _, who, _ in work.came}) == 3, "all three get messages")
            leaving = _settled_owner(sidecars, deployment.topic)
            client = Http(leaving)
            [held] = client.receive_until(bool, 30, most=1)
            began = time.monotonic()
            leaving.popen.terminate()  # type: ignore[union-attr]  # it was started
            time.sleep(HELD_S)
            ended = time.monotonic()
            assert "draining" in ready(leaving)
            assert client.settle([held["lease"]]) == ["acked"]
            wait_until(lambda: not leaving.running, "it has stopped", timeout_s=SOON_S)
            assert leaving.popen.returncode == 0  # type: ignore[union-attr]
        gap_s, starved_s = work.gap_s(began, ended)
        print(f"{broker.name}: gap {gap_s:.3f} s, of it starved {starved_s:.3f} s")  # noqa: T201
        assert gap_s - starved_s <= GAP_S
        beside = work.beside(leaving.name, began, ended)
        assert set(beside) == {200}, "its application is served on"
        last_s = max(at for at, who, _ in work.came if who == leaving.name and at <= ended)
        assert last_s > ended - GAP_S, "and gets messages"
        assert set(work.settled) == {"acked"}
        ids = [each for _, _, each in work.came]
        assert len(ids) == len(set(ids)), "nothing came twice"
