"""A server that refuses writes and answers reads: told once, and readiness says no."""

import logging
from functools import partial

import pytest

from ackd.core.record.transitions import Verb
from ackd.engine.control.readiness import readiness
from ackd.errors import StoreError
from ackd.ports import Store
from tests.conftest import RedisFactory
from tests.contract.store.owner import Owner
from tests.contract.store.servers import connect, redis7, started
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]
REFUSALS = {
    "used memory": (("CONFIG", "SET", "maxmemory", "1mb"), ("CONFIG", "SET", "maxmemory", "0")),
    "enough good replicas": (
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
    ),
}


def ok(store: Store) -> bool:
    """What readiness says of it."""
    [reason] = readiness(store, {}, {}, {}, draining=False)
    return reason.ok


@pytest.mark.parametrize("words", REFUSALS)
async def test_refused_writes_are_told_once(
    own_redis: RedisFactory, caplog: pytest.LogCaptureFixture, words: str
) -> None:
    """However many reads succeed meanwhile, and whichever script is refused."""
    server = own_redis(redis7())
    begin, end = REFUSALS[words]
    caplog.set_level(logging.INFO, logger="ackd.store")
    async with started(connect(server.port)) as store:
        owner = Owner(store)
        await owner.open()
        boot = await store.register("work", "one")
        assert ok(store)
        with server.client() as client:
            client.execute_command(*begin)
            for _ in range(3):
                for write in (
                    owner.foreign,
                    partial(store.heartbeat, "work", "one", boot, (), ""),
                    partial(store.put, "value", b"x"),
                ):
                    with pytest.raises(StoreError, match=words):
                        await write()
                    assert await store.get("value") is None
                    assert not ok(store)
                    assert [condition.away for condition in store.conditions()] == [True]
            client.execute_command(*end)

        async def again() -> bool:
            try:
                await store.heartbeat("work", "one", boot, (), "")
            except StoreError:
                return False
            return ok(store)

        await wait_until_async(again, "the store to be well")
        assert (await owner.grant(1))[0].verb is Verb.ACK
    told = [record.getMessage() for record in caplog.records if record.name == "ackd.store"]
    failed = [each for each in told if each.startswith("the store failed")]
    assert (len(failed), told.count("the store answers again")) == (1, 1), told
