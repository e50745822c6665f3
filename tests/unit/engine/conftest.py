"""Tests of the engine's parts run on test time; those that read files or threads do not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from ackd.engine.base.tasks import Tasks
from tests.unit.engine.clock import TestTimeLoop
from tests.unit.engine.world import World

HERE = Path(__file__).parent
TEST_TIME = ("test_subscription.py",)
"""Tests beside this file whose parts know rooms, and are in none."""


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests in a folder of a room get test time, and most beside this file a real loop."""
    if item.path.parent == HERE and item.path.name not in TEST_TIME:
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
