"""The adapter's remoting client, as tests use it, and messages sent to a chosen queue."""

import struct
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.remoting import ensure
from ackd_adapters.rocketmq.remoting_admin import LogQueue, RemotingAdmin
from tests.support.rocketmq.bare import now_ms
from tests.support.wait import wait_until_async


@asynccontextmanager
async def admin(names: int, **more: object) -> AsyncIterator[RemotingAdmin]:
    """A client that asks this port of this machine."""
    options = RocketMQOptions(
        endpoints="127.0.0.1:1",
        name_servers=f"127.0.0.1:{names}",
        request_timeout_ms=15_000,
        **more,  # type: ignore[arg-type]
    )
    it = RemotingAdmin(options)
    await it.start()
    try:
        yield it
    finally:
        await it.close()


async def queues_of(it: RemotingAdmin, topic: str) -> list[LogQueue]:
    """Its queues, as soon as the name server knows them."""
    found: list[LogQueue] = []

    async def known() -> bool:
        found[:] = await it.queues(topic)
        return bool(found)

    await wait_until_async(known, f"the route of {topic}")
    return found


async def filed(it: RemotingAdmin, queue: LogQueue, end: int) -> None:
    """Wait until the queue ends there: a broker files a message after it has confirmed it."""

    async def there() -> bool:
        return (await it.range(queue))[1] == end

    await wait_until_async(there, f"{queue} to end at {end}")


SEND_BATCH = 320
BATCH = 200


async def send(it: RemotingAdmin, queue: LogQueue, values: Sequence[bytes]) -> list[int]:
    """Store messages with these bodies in a queue, in this order; returns their offsets."""
    offsets: list[int] = []
    for start in range(0, len(values), BATCH):
        batch = values[start : start + BATCH]
        answer = ensure(
            "send", await it.ask(queue, SEND_BATCH, _batch_fields(queue), _packed(batch))
        )
        first = int(answer.fields["queueOffset"])
        offsets += range(first, first + len(batch))
    return offsets


def _batch_fields(queue: LogQueue) -> dict[str, str]:
    """The short names that the broker has for the parts of such a request."""
    return {
        "a": "tests",  # producer group
        "b": queue.topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue.number),
        "f": "0",
        "g": str(now_ms()),
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "true",
        "n": queue.broker,
    }


def _packed(values: Sequence[bytes]) -> bytes:
    made = []
    for value in values:
        properties = f"UNIQ_KEY\x01{uuid.uuid4().hex.upper()}\x02".encode()
        rest = struct.pack(">IIII", 0, 0, 0, len(value)) + value
        rest += struct.pack(">H", len(properties)) + properties
        made.append(struct.pack(">I", 4 + len(rest)) + rest)
    return b"".join(made)
