"""R29 would be noticed: a redrive with a planted mistake fails what the right one passes.

A batch is begun twice, as after a crash between its copies and their mark. Each letter has to come
once, to this group alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ackd.api.messages import Delivery, SettleVerb
from ackd.core.ledger.claims import ClaimTracker
from ackd.engine.operations.redrive_job import RedriveJob
from ackd.errors import StoreUnknownError
from tests.integration.engine.test_dead_letters import REDRIVE, dead_letter, desk, done
from tests.integration.engine.test_send_back import NAME, Place

COUNT = 12


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Place]:
    """A queue on the local disk."""
    async with AsyncExitStack() as stack:
        yield Place(stack, tmp_path, None)


def cut_once() -> Any:
    """The store's answer to the first mark is lost; what it decided is not known."""
    original = RedriveJob._mark
    cuts = [True]

    async def mark(self: RedriveJob, *rest: Any) -> None:
        if cuts:
            cuts.pop()
            raise StoreUnknownError
        await original(self, *rest)

    return patch.object(RedriveJob, "_mark", mark)


async def redriven(place: Place) -> tuple[int, int, int]:
    """(deliveries, letters that came, messages that the origin topic got by it)."""
    sidecar = await place.start()
    messages = await dead_letter(sidecar, COUNT)
    with cut_once():
        await done(sidecar, await desk(sidecar).begin(NAME, REDRIVE))
    got: list[Delivery] = []
    while found := await sidecar.receive(wait_ms=1_000 if len(got) >= COUNT else 30_000):
        got += found
        await sidecar.settle(found, SettleVerb.ACK)
    rows = [row for row in await sidecar.runtime.lag(NAME) if row.topic == place.topic]
    added = sum(row.end for row in rows) - len(messages)
    bodies = {each.record.value for each in got}
    return len(got), len(bodies), added


def no_claim() -> Any:
    """A copy is handed out without asking for its origin record."""

    def arrived(self: ClaimTracker[Any], offset: int) -> None:
        self._life.make_ready(offset, self._entries.by_offset[offset])

    return patch.object(ClaimTracker, "arrived", arrived)


def to_everybody() -> Any:
    """What is meant for the group goes to the origin topic."""
    return patch.object(RedriveJob, "_to_group", RedriveJob._to_topics)


async def test_r29_a_batch_that_is_begun_twice_comes_once(local: Place) -> None:
    assert await redriven(local) == (COUNT, COUNT, 0)


@pytest.mark.parametrize("plant", [no_claim, to_everybody], ids=lambda plant: plant.__name__)
async def test_r29_a_planted_mistake_is_noticed(local: Place, plant: Callable[[], Any]) -> None:
    with plant():
        deliveries, letters, added = await redriven(local)
    assert (deliveries, letters, added) != (COUNT, COUNT, 0)
