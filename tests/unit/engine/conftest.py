"""Tests of the engine's parts run on test time; those that need a real clock or threads do not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from ackd.engine.base.tasks import Tasks
from tests.unit.engine.clock import TestTimeLoop
from tests.unit.engine.world import World

REAL_LOOP = (
    "test_outbox.py",
    "test_publish.py",
    "test_replay_log.py",
    "test_runtime.py",
    "test_spill_file.py",
    "test_walk.py",
)
"""Tests that wait by the system's clock, or for threads."""


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Test time, but for those that a jumping clock would mislead."""
    if item.path.name in REAL_LOOP:
        return {"real": asyncio.new_event_loop}
    return {"test time": TestTimeLoop}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """What parts are given, on test time. The flusher runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TestTimeLoop)
    world, tasks = World(loop.clock), Tasks("world")
    tasks.start(world.flusher.run(), "flusher")
    yield world
    await tasks.stop()
