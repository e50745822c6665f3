"""Records of a newer build: this one serves none of them, changes none of them, and says so."""

import pytest

from ackd.api.messages import SettleItem, SettleVerb
from ackd.core.record.state import LAYOUT
from ackd.errors import StoreLayoutError
from tests.integration.engine.together import Together
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.redis


WRITE = """
local head = redis.call("HGET", KEYS[1], "c")
if head then redis.call("HSET", KEYS[1], "c", string.char(ARGV[1]) .. string.sub(head, 2)) end
"""


def write_layout(server: RedisServer, prefix: str, layout: int) -> None:
    """As a build would that writes this layout into every record."""
    with server.client() as client:
        for key in client.scan_iter(match=f"{prefix}:v1:*:m"):
            client.eval(WRITE, 1, key, layout)


async def test_records_of_a_newer_build_are_refused_until_they_can_be_read(
    together: Together, valkey: RedisServer
) -> None:
    """By a sidecar that holds leases of them, and by one that starts; nobody delivers them."""
    assert together.store.prefix is not None
    one = await together.start("one")
    await one.publish(8)
    held = await one.collect(4)
    write_layout(valkey, together.store.prefix, LAYOUT + 1)
    items = [SettleItem(each.lease, SettleVerb.ACK) for each in held]

    async def refused() -> bool:
        results = await one.runtime.settle(items)
        return all(isinstance(each.error, StoreLayoutError) for each in results)

    await wait_until_async(refused, "settles to be refused")
    assert not (await one.receive(wait_ms=100)).messages
    await one.says("a record is being read again", "store-layout", "a newer build made its record")
    other = await together.start("other", wait=False)
    await other.says("partitions are being opened", "store-layout")
    assert not (await other.receive(wait_ms=100)).messages
    write_layout(valkey, together.store.prefix, LAYOUT)
    await one.ready()
    await other.ready()
    results = await one.runtime.settle(items)
    assert {each.error for each in results} == {None}
    left = await one.collect_all(4, other)
    assert not {each.id for each in left} & {each.id for each in held}
