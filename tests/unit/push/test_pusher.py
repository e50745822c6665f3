"""When the pusher makes no call, though it has a message: one sidecar, an application by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock, Mock

from ackd.api.messages import (
    Delivery,
    Engine,
    Received,
    ReceiveRequest,
    SettleItem,
    SettleResult,
    SettleVerb,
    Status,
)
from ackd.config.push import PushSettings
from ackd.config.subscription import SubscriptionSettings
from ackd.ports import Record
from ackd.push.call import Failed, PushAnswer, PushClient, PushFailure
from ackd.push.push_request import PushRequest
from ackd.push.pusher import Pusher
from ackd.telemetry.metrics import Metrics

DONE = {SettleVerb.EXTEND: Status.EXTENDED, SettleVerb.RELEASE: Status.RELEASED}
WITHIN_S = 60
"""Only ends what hangs."""


class Application(PushClient):
    """Each call waits for what the test says."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:8000")
        self.calls: asyncio.Queue[tuple[str, float, asyncio.Future[PushAnswer | PushFailure]]] = (
            asyncio.Queue()
        )

    async def start(self) -> None:
        """Nothing to prepare."""

    async def there(self) -> bool:
        """Nobody listens."""
        return False

    async def post(self, request: PushRequest, bound: asyncio.Timeout) -> PushAnswer | PushFailure:
        del bound
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[PushAnswer | PushFailure] = loop.create_future()
        await self.calls.put((dict(request.headers)["Ackd-Id"], loop.time(), answer))
        return await answer

    async def call(self) -> tuple[str, float, asyncio.Future[PushAnswer | PushFailure]]:
        """The next one."""
        async with asyncio.timeout(WITHIN_S):
            return await self.calls.get()


class Messages:
    """The engine's half: gives out what the test puts in, and settles when it may."""

    def __init__(self) -> None:
        self.ready: asyncio.Queue[Delivery] = asyncio.Queue()
        self.store_up = asyncio.Event()
        self.store_up.set()
        self.given_back: asyncio.Queue[str] = asyncio.Queue()
        self.asked: asyncio.Queue[SettleItem] = asyncio.Queue()
        self.engine = Mock(spec=Engine)
        self.engine.receive = self.receive
        self.engine.settle = self.settle
        self.engine.abandon = self.abandon
        self.engine.lease_ms.return_value = 30_000
        self.engine.subscription.return_value.pauses = []
        self.engine.unsettled.return_value = Mock(count=Mock(return_value=0), wait=AsyncMock())

    def put(self, offset: int) -> None:
        """A message is ready."""
        record = Record(offset, None, b"1", (), 0)
        self.ready.put_nowait(Delivery(f"v1.{offset}", "orders", 0, record, 1, 5, 0, 0))

    async def receive(self, name: str, request: ReceiveRequest) -> Received:
        del name, request
        return Received([await self.ready.get()])

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleResult]:
        for item in items:
            await self.asked.put(item)
        await self.store_up.wait()
        return [SettleResult(DONE.get(each.do, Status.ACKED)) for each in items]

    async def abandon(self, received: Received) -> None:
        for each in received.messages:
            await self.given_back.put(each.id)


@asynccontextmanager
async def pushing(messages: Messages, application: Application) -> AsyncIterator[Pusher]:
    """A pusher with room for several calls."""
    settings = SubscriptionSettings(
        broker="b", topics=("orders",), push=PushSettings(url=application.url, trial_ms=3_600_000)
    )
    pusher = Pusher("orders", settings, messages.engine, Metrics(), application, [])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pusher.run())
        try:
            yield pusher
        finally:
            messages.store_up.set()
            task.cancel()


async def test_the_breaker_opens_before_the_store_has_the_message_back() -> None:
    """What is leased while the store is slow goes back, and no call tries who is away."""
    messages, application = Messages(), Application()
    async with pushing(messages, application):
        messages.put(1)
        _, _, answer = await application.call()
        messages.store_up.clear()
        answer.set_result(PushFailure(Failed.UNREACHABLE, "refused"))
        async with asyncio.timeout(WITHIN_S):
            assert (await messages.asked.get()).do is SettleVerb.RELEASE
        messages.put(2)
        async with asyncio.timeout(WITHIN_S):
            assert await messages.given_back.get() == "orders/0/2"
    assert application.calls.empty()


async def test_a_kept_message_waits_for_the_longest_pause() -> None:
    """Its own was over after 0.1 s; another call was told 1 s."""
    messages, application = Messages(), Application()
    async with pushing(messages, application):
        messages.put(1)
        messages.put(2)
        first, _, kept = await application.call()
        _, _, other = await application.call()
        kept.set_result(PushAnswer(503, {"Retry-After": "0"}, b""))
        await asyncio.sleep(0)
        told_s = asyncio.get_running_loop().time()
        other.set_result(PushAnswer(429, {"Retry-After": "1"}, b""))
        again, at_s, _ = await application.call()
    assert again == first
    assert at_s >= told_s + 1


async def test_a_kept_message_goes_back_when_nobody_is_there_any_more() -> None:
    messages, application = Messages(), Application()
    async with pushing(messages, application):
        messages.put(1)
        messages.put(2)
        _, _, kept = await application.call()
        _, _, other = await application.call()
        kept.set_result(PushAnswer(503, {"Retry-After": "0"}, b""))
        other.set_result(PushFailure(Failed.UNREACHABLE, "refused"))
        async with asyncio.timeout(WITHIN_S):
            while True:
                item = await messages.asked.get()
                if (item.lease, item.do) == ("v1.1", SettleVerb.RETRY):
                    break
        assert item.count is False
    assert application.calls.empty()
