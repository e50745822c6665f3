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
    """Everything started in it is stopped at the end. Whatever the broker did, nobody took it for a
    log that was cut, but where it was (R32).
    """
    async with AsyncExitStack() as stack:
        shop = Shop(stack, tmp_path, rocketmq, valkey)
        yield shop
        assert sum(each.metric("ackd_log_cuts_total") for each in shop.workers) == shop.cuts
