"""A client as an application without ackd would have it, and what tests ask of it."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ackd_adapters.rocketmq.client import EVERYTHING, GroupClient, HeldMessage
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.message import MessageIds, MessageToSend, Sent, Taken
from ackd_adapters.rocketmq.protocol.definition_pb2 import FilterExpression, MessageQueue
from ackd_adapters.rocketmq.rpc import Rpc
from ackd_adapters.rocketmq.session import Session, consumer_settings
from tests.support.rocketmq.broker import RocketMQ
from tests.support.wait import wait_until_async

HOLD_MS = 1_500
POLL_MS = 1_000


def now_ms() -> int:
    """Unix time."""
    return time.time_ns() // 1_000_000


class Bare:
    """One client of one group and topic."""

    def __init__(
        self, rpc: Rpc, client: GroupClient, session: Session, topic: str, queue: MessageQueue
    ) -> None:
        self.rpc, self.client, self.session = rpc, client, session
        self.topic, self.queue = topic, queue
        self._ids = MessageIds()

    async def send(self, body: bytes, tag: str = "", group: str = "", due_ms: int = 0) -> Sent:
        """Send a message."""
        outgoing = MessageToSend(self.topic, body, tag=tag, group=group, due_ms=due_ms)
        return await self.client.send(outgoing, self._ids.make(now_ms()), now_ms(), "127.0.0.1")

    async def take(
        self,
        most: int = 32,
        hold_ms: int = HOLD_MS,
        expression: FilterExpression = EVERYTHING,
        attempt_id: str = "",
    ) -> list[Taken]:
        """One receive."""
        return await self.client.receive(
            self.queue,
            most=most,
            hold_ms=hold_ms,
            poll_ms=POLL_MS,
            expression=expression,
            attempt_id=attempt_id,
        )

    async def take_some(self, count: int, hold_ms: int = HOLD_MS) -> list[Taken]:
        """Receive until so many have come."""
        found: list[Taken] = []

        async def enough() -> bool:
            found.extend(await self.take(count - len(found), hold_ms))
            return len(found) >= count

        await wait_until_async(enough, f"{count} messages")
        return found

    async def within(self, seconds: float, until: Callable[[list[Taken]], bool]) -> list[Taken]:
        """What comes within so many seconds, or until there is enough."""
        found: list[Taken] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until(found):
            found += await self.take(hold_ms=60_000)
        return found

    async def ack(self, *taken: Taken) -> list[str]:
        """Ack with the handles that they came with."""
        return await self.client.ack(self.topic, [held(each) for each in taken])


def held(message: Taken) -> HeldMessage:
    """What calls about it need."""
    return HeldMessage(message.message_id, message.handle)


def some(found: list[Taken]) -> bool:
    """Something came."""
    return bool(found)


def never(_: list[Taken]) -> bool:
    """Wait for the whole time."""
    return False


@asynccontextmanager
async def bare(
    broker: RocketMQ,
    *,
    kind: str = "NORMAL",
    queues: int = 1,
    retries: int = 1000,
    options: RocketMQOptions | None = None,
) -> AsyncIterator[Bare]:
    """A client with a topic and a group of its own."""
    name = f"t{uuid.uuid4().hex[:12]}"
    await asyncio.to_thread(broker.admin.topic, name, queues, kind)
    await asyncio.to_thread(
        lambda: broker.admin.group(f"g{name}", orderly=kind == "FIFO", retries=retries)
    )
    rpc = Rpc(options or RocketMQOptions(endpoints=broker.endpoints), f"bare-{name}")
    await rpc.start()
    client = GroupClient(rpc, options or RocketMQOptions(endpoints=broker.endpoints), f"g{name}")
    settings = consumer_settings(client.group, {name: EVERYTHING}, POLL_MS)
    session = Session(rpc, settings, client.group)
    try:
        session.start(lambda _: None)
        await session.ready(60)
        found: list[MessageQueue] = []

        async def known() -> bool:
            found[:] = await client.route(name)
            return len(found) == queues * len(broker.names_of_brokers)

        await wait_until_async(known, f"the route of {name}")
        yield Bare(rpc, client, session, name, found[0])
    finally:
        await session.close()
        await rpc.close()
