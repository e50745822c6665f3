"""What is stuck leaves the window, however the start of its sidecar went (I5), on virtual time."""

from __future__ import annotations

import pytest

from ackd.api.messages import ReceiveRequest
from ackd.engine.ownership.ownership import Ownership
from ackd.engine.partition.partition import Partition
from ackd.engine.runtime import Runtime
from tests.simulation.book import read_token
from tests.simulation.faults import TOPIC
from tests.simulation.plan import Story
from tests.simulation.run import NAME, Run
from tests.simulation.world import MS, S

SEEDS = 60
SLOWEST_MS = 450
STUCK_MS = 2_000
SETTINGS = (("sidecars", 1), ("partitions", 2), ("before", 0), ("lease_ms", 120_000))
STORY = Story(settings=(*SETTINGS, ("stuck_ms", STUCK_MS)))


def receive(run: Run) -> list[str]:
    """Leases of two messages, one of each partition; nobody will settle them."""
    found: list[str] = []

    async def work(engine: Runtime) -> list[str]:
        leases: list[str] = []
        while len(leases) < 2:
            received = await engine.receive(NAME, ReceiveRequest(max=2, wait_ms=15_000))
            leases += [message.lease for message in received.messages]
        return leases

    def answer(result: object, error: Exception | None) -> None:
        assert error is None
        assert isinstance(result, list)
        found.extend(result)

    run.sidecars[0].request(work, answer)
    assert run.world.run(run.world.now_us + 60 * S, lambda: bool(found)), "no answer"
    return found


def staying(seed: int, slowest_ms: int) -> list[str]:
    """Messages that are still in the window when all that are stuck should have left it."""
    run = Run(seed, STORY)
    try:
        run.broker_faults.latency_us = (300, slowest_ms * MS)
        run.sidecars[0].boot()
        run.world.run(run.world.now_us + 3 * S + 20 * slowest_ms * MS)
        for number in range(2):
            run.cluster.publish(TOPIC, number, b"message")
        places = [read_token(lease).coordinate for lease in receive(run)]
        run.world.run(run.world.now_us + (2 * STUCK_MS + 10 * slowest_ms) * MS + 2 * S)
        return [f"seed {seed}: {at}" for at in places if not run.checker.book.message(at).sent]
    finally:
        run.clean_up()


@pytest.mark.parametrize("slowest_ms", [3, 100, SLOWEST_MS])
def test_i5_what_is_stuck_leaves_whatever_was_ready_first(slowest_ms: int) -> None:
    """The retry topic is made while partitions are opened; each may be ready before the other."""
    assert [stays for seed in range(SEEDS) for stays in staying(seed, slowest_ms)] == []


def test_a_partition_that_goes_by_what_was_when_it_was_begun_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mistake that was made: who was being opened heard nothing of the retry topic."""
    go_by = Partition.go_by

    def owned_alone(self: Ownership) -> None:
        for tp, partition in self._partitions.owned.items():
            go_by(partition, self._policy(tp))

    monkeypatch.setattr(Ownership, "policies_changed", owned_alone)
    monkeypatch.setattr(Partition, "go_by", lambda *_: None)
    assert any(staying(seed, SLOWEST_MS) for seed in range(SEEDS))
