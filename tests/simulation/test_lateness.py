"""How late a sidecar learns what another one settled (R16, I4), on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

from ackd.api.messages import (
    Delivery,
    Received,
    ReceiveRequest,
    SettleItem,
    SettleResult,
    SettleVerb,
)
from ackd.engine.delivery.deadline_timers import IDLE_MS, JOURNAL_MS
from ackd.engine.runtime import Runtime
from tests.simulation.faults import TOPIC
from tests.simulation.plan import Story
from tests.simulation.run import NAME, Run
from tests.simulation.sidecar import Sidecar
from tests.simulation.world import MS, S

DELAY_MS = 10
TRIPS_MS = 40
"""More than the requests and store calls of one round take."""


@pytest.fixture
def run() -> Iterator[Run]:
    """Two sidecars, the first of which owns the one partition; nothing goes wrong by itself."""
    settings = (("sidecars", 2), ("partitions", 1), ("before", 0), ("stuck_ms", 2_000))
    run = Run(1, Story(settings=(*settings, ("lease_ms", 60_000))))
    for sidecar in run.sidecars:
        sidecar.boot()
        run.world.run(run.world.now_us + 3 * S)
    yield run
    run.clean_up()


def ask(run: Run, sidecar: Sidecar, work: Callable[[Runtime], Awaitable[object]]) -> object:
    """A request and its answer."""
    said: list[object] = []
    sidecar.request(work, lambda result, error: said.append(error or result))
    assert run.world.run(run.world.now_us + 20 * S, lambda: bool(said)), "no answer"
    return said[0]


def receive(run: Run, sidecar: Sidecar) -> Delivery:
    """The next message."""
    request = ReceiveRequest(max=1, wait_ms=15_000)
    received = ask(run, sidecar, lambda engine: engine.receive(NAME, request))
    assert isinstance(received, Received)
    [message] = received.messages
    return message


def settle(
    run: Run, sidecar: Sidecar, message: Delivery, do: SettleVerb, delay_ms: int = 0
) -> None:
    """It counts."""
    item = SettleItem(message.lease, do, delay_ms=delay_ms)
    results = ask(run, sidecar, lambda engine: engine.settle([item]))
    assert isinstance(results, list)
    [result] = results
    assert isinstance(result, SettleResult)
    assert result.error is None, result


def owner_and_other(run: Run) -> tuple[Sidecar, Sidecar]:
    """Who has the partition of the topic, and who has not."""
    one, two = run.sidecars
    assert one.runtime is not None
    owned = one.runtime._subscriptions[NAME].partitions.owned
    return (one, two) if any(tp.topic == TOPIC for tp in owned) else (two, one)


@pytest.mark.parametrize("idle_ms", [30, 400, 730, 1_150])
def test_a_foreign_retry_is_learnt_soon_after_an_idle_time(run: Run, idle_ms: int) -> None:
    """R16: the first message after a quiet time; nobody may sleep on for the rest of a second."""
    owner, other = owner_and_other(run)
    run.world.run(run.world.now_us + (3 * IDLE_MS + idle_ms) * MS)
    run.cluster.publish(TOPIC, 0, b"message")
    first = receive(run, owner)
    settle(run, other, first, SettleVerb.RETRY, DELAY_MS)
    start_us = run.world.now_us
    again = receive(run, owner)
    assert (again.id, again.attempt) == (first.id, 2)
    assert run.world.now_us - start_us <= (DELAY_MS + JOURNAL_MS + TRIPS_MS) * MS
    settle(run, owner, again, SettleVerb.ACK)


@pytest.mark.parametrize("at_owner", [True, False])
@pytest.mark.parametrize("do", [SettleVerb.RETRY, SettleVerb.RELEASE])
def test_a_forwarded_lease_that_ends_early_frees_its_copy(
    run: Run, do: SettleVerb, *, at_owner: bool
) -> None:
    """R4, I4: its copy asks the origin record when the lease ends, and this one ends before its
    deadline.
    """
    owner, other = owner_and_other(run)
    run.cluster.publish(TOPIC, 0, b"message")
    first = receive(run, owner)
    run.world.run(run.world.now_us + 12 * S)  # sent back meanwhile
    settle(run, owner if at_owner else other, first, do, DELAY_MS)
    start_us = run.world.now_us
    holder = next(each for each in run.sidecars if has_copy(each))
    again = receive(run, holder)
    assert again.id == first.id
    assert run.world.now_us - start_us <= (DELAY_MS + JOURNAL_MS + 2 * TRIPS_MS) * MS


def has_copy(sidecar: Sidecar) -> bool:
    """Whether it owns the partition of the retry topic with the copy."""
    assert sidecar.runtime is not None
    owned = sidecar.runtime._subscriptions[NAME].partitions.owned.values()
    return any(each.ledger.holds_copies and each.ledger.entries for each in owned)
