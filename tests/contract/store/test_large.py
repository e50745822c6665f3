"""A record with many open leases is read without holding up everything else (I4)."""

import pytest

from tests.conftest import RedisFactory
from tests.contract.store.owner import Owner
from tests.contract.store.servers import connect, redis7, started
from tests.support.turns import longest_turn

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
LEASES = 8_000


async def test_i4_reading_many_leases_lets_others_have_their_turn(own_redis: RedisFactory) -> None:
    server = own_redis(redis7())
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        for first in range(0, LEASES, 1_000):
            await owner.grant(*range(first, first + 1_000))
        assert [slot.offset for slot in (await owner.open()).slots] == list(range(LEASES))
        assert await longest_turn(owner.open(again=True)) < LEASES
