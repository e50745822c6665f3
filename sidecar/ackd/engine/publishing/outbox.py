"""The outbox of one broker: accepts messages into the store, and sends them in the background.

Messages are durable when `accept` returns. All sidecars of a store share a broker's outbox (see
`outbox_name`); the sidecar that holds its lease sends (`outbox_sender`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from ackd.api.messages import Accepted
from ackd.api.outbox import OutboxMessage, OutboxView
from ackd.config.schema import PublishSettings
from ackd.core.outbox import Bounds, EnqueueRequest, EnqueueResult, NewMessage
from ackd.engine.base.context import Context
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox_codec import read_status, write_message
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.engine.publishing.outbox_sender import OutboxSender
from ackd.errors import (
    BodyTooLargeError,
    BrokerError,
    NotFailedError,
    PressureError,
    StoreError,
    StoreUnknownError,
    UnknownOutboxMessageError,
)
from ackd.ports import Broker, Outgoing

REQUESTS_MAX = 500
BATCH_BYTES_MAX = 8 * 1024 * 1024

_Asked = tuple[EnqueueRequest, asyncio.Future[EnqueueResult]]


class OutboxService:
    """Accepts messages for one broker. `Publisher` bounds how much waits for the store."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        settings: PublishSettings,
        context: Context,
        outbox_name: OutboxName,
        away: Callable[[], bool],
    ) -> None:
        self.name = name
        self._outbox_name = outbox_name
        self.away = away
        self._settings = settings
        self._context = context
        self.sender = OutboxSender(name, broker, settings, context, outbox_name, away)
        self._bounds = Bounds(
            settings.outbox_messages_max, settings.outbox_bytes_max, settings.idempotency_ms
        )
        self._asked: deque[_Asked] = deque()
        self._tasks = Tasks(f"outbox.{name}", context.vitals)
        self._asking = False

    # --- accepting

    async def accept(
        self, messages: Sequence[Outgoing], idempotency_key: bytes
    ) -> tuple[list[Accepted], bool]:
        """Make all messages durable, or none. Also returns whether this repeats a request with the
        same key.

        Raises PressureError (the outbox is full), BodyTooLargeError, StoreError.
        """
        packed = tuple(NewMessage(each.delay_ms, write_message(each)) for each in messages)
        size = sum(len(each.body) for each in packed)
        if size > self._bounds.bytes_max or len(packed) > self._bounds.messages_max:
            raise BodyTooLargeError(
                "larger than the whole outbox may be (publish.outbox_bytes_max)"
            )
        enqueued = await self._enqueue(EnqueueRequest(idempotency_key, packed))
        metrics = self._context.metrics
        if not enqueued.first:
            metrics.publishing.outbox_refused.at(self.name, enqueued.refused).inc()
            raise PressureError(f"the outbox of {self.name} is full ({enqueued.refused})")
        if not enqueued.replayed:
            metrics.publishing.outbox_accepted.at(self.name).inc(len(messages))
        for each in messages:
            self.sender.accepted(each.delay_ms)
        accepted = [
            Accepted(self.name, enqueued.first + index, enqueued.now_ms + each.delay_ms)
            for index, each in enumerate(messages)
        ]
        return accepted, enqueued.replayed

    async def _enqueue(self, enqueue: EnqueueRequest) -> EnqueueResult:
        """Requests that arrive during a call to the store share the next call."""
        future: asyncio.Future[EnqueueResult] = asyncio.get_running_loop().create_future()
        self._asked.append((enqueue, future))
        if not self._asking:
            self._asking = True
            self._tasks.start(self._ask_all(), "accept", ends=True)
        return await future

    async def _ask_all(self) -> None:
        asked: list[_Asked] = []
        try:
            while asked := self._next():
                try:
                    requests = [enqueue for enqueue, _ in asked]
                    answers = await self._context.store.outboxes.enqueue(
                        self._outbox_name.name, requests, self._bounds
                    )
                except (StoreError, BrokerError) as error:
                    _fail(asked, error)
                    continue
                for (_, future), enqueued in zip(asked, answers, strict=True):
                    if not future.done():
                        future.set_result(enqueued)
        finally:
            self._asking = False
            _fail(asked, StoreUnknownError("stopped in mid-call"))
            _fail(self._asked, StoreError("stopped"))
            self._asked.clear()

    def _next(self) -> list[_Asked]:
        asked: list[_Asked] = []
        room = BATCH_BYTES_MAX
        while self._asked and len(asked) < REQUESTS_MAX and (room > 0 or not asked):
            asked.append(self._asked.popleft())
            room -= sum(len(each.body) for each in asked[-1][0].messages)
        return asked

    # --- looking

    async def status(self, number: int) -> OutboxMessage:
        """Read one message's state. Raises UnknownOutboxMessageError, StoreError."""
        found = await self._context.store.outboxes.status(self._outbox_name.name, number)
        if not found.state:
            raise UnknownOutboxMessageError
        return read_status(self.name, number, found)

    async def again(self, number: int) -> OutboxMessage:
        """Send a failed message again. Raises NotFailedError, and what `look` raises."""
        if not await self._context.store.outboxes.again(self._outbox_name.name, number):
            found = await self.status(number)
            raise NotFailedError(f"{found.id} is {found.state}")
        self.sender.accepted(0)
        return await self.status(number)

    @property
    def backlog(self) -> bool:
        """Whether due messages wait here, as far as this sidecar knows."""
        return self.sender.backlog

    async def run(self) -> None:
        """Send what is due, while this sidecar has the right to. Until cancelled."""
        await self.sender.run()

    async def drain(self) -> None:
        """Wait until due messages are sent, as long as sending succeeds."""
        await self.sender.drain()

    async def stop(self) -> None:
        """Finish what is under way, for a bounded time, and let another sidecar send."""
        await self.sender.stop()
        await self._tasks.stop()


class OutboxServices:
    """Implements `ackd.api.outbox.OutboxApi` on all brokers' outboxes."""

    def __init__(self, outboxes: Mapping[str, OutboxService]) -> None:
        self._outboxes = outboxes

    def _of(self, broker: str) -> OutboxService:
        outbox = self._outboxes.get(broker)
        if outbox is None:
            raise UnknownOutboxMessageError(f"there is no outbox for a broker {broker!r}")
        return outbox

    def views(self) -> list[OutboxView]:
        return [each.sender.view() for each in self._outboxes.values()]

    async def message(self, broker: str, number: int) -> OutboxMessage:
        return await self._of(broker).status(number)

    async def again(self, broker: str, number: int) -> OutboxMessage:
        return await self._of(broker).again(number)


def _fail(asked: Sequence[_Asked] | deque[_Asked], error: StoreError | BrokerError) -> None:
    for _, future in asked:
        if not future.done():
            future.set_exception(type(error)(error.detail, **error.facts))
            future.exception()  # mark as retrieved: the waiting caller may be gone
