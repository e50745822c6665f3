"""A shop for each test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.integration.rocketmq.shop import Shop
from tests.support.redis import RedisServer
from tests.support.rocketmq import RocketMQ


@pytest.fixture
async def shop(rocketmq: RocketMQ, valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Shop]:
    """Everything started in it is stopped at the end."""
    async with AsyncExitStack() as stack:
        yield Shop(stack, tmp_path, rocketmq, valkey)
