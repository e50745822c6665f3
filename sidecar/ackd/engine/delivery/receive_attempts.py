"""Answer a repeated receive whose answer was lost: the same `attempt_id` gets the same leases (rule
R21).

The store keeps the id for as long as the leases last. This sidecar keeps the newest messages that
it answered, wherever they came from and wherever they have gone since. Others, after a restart or
when the repeat comes to another sidecar, it gets from the owner of their partition, or from the one
that has their copies in the retry topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import msgspec

from ackd.api.messages import Delivery, Received, ReceiveRequest
from ackd.core.lease_token import BadTokenError, Token, UnknownKeyError
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.retry.moved_bodies import MovedBodies
from ackd.engine.settlement.notes import ProgressNotes
from ackd.engine.settlement.settle import LeaseLook
from ackd.errors import AttemptMismatchError, StoreError
from ackd.ports import Record

BODY_WAIT_MS = 3_000
BODY_POLL_MS = 20
ELSEWHERE_POLL_MS = 400
"""The owner may not have fetched the message yet, either."""
KEPT_MAX = 10_000
KEPT_BYTES_MAX = 16 << 20
"""Answered messages that are kept for a repeat, of each subscription (I8)."""


class RememberedReceive(msgspec.Struct):
    """What the store keeps of a receive: its parameters and the tokens of its leases."""

    parameters: str
    leases: list[str]


class AnsweredMessages:
    """The newest messages that receives with an `attempt_id` were answered, by lease."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Delivery, int]] = {}
        self._bytes = 0

    def keep(self, messages: Iterable[Delivery], now_ms: int, until_ms: int) -> None:
        """Keep them until `until_ms`, or until newer ones need the room."""
        for message in messages:
            self._kept[message.lease] = message, until_ms
            self._bytes += message.record.size()
        while self._kept:
            oldest, ends_ms = next(iter(self._kept.values()))
            crowded = len(self._kept) > KEPT_MAX or self._bytes > KEPT_BYTES_MAX
            if not crowded and ends_ms > now_ms:
                return
            self.forget(oldest.lease)

    def find(self, lease: str) -> Delivery | None:
        """Return the message as it was answered."""
        found = self._kept.get(lease)
        return None if found is None else found[0]

    def forget(self, lease: str) -> None:
        found = self._kept.pop(lease, None)
        if found is not None:
            self._bytes -= found[0].record.size()


Elsewhere = Callable[[Token, str], Awaitable[Delivery | None]]
"""Asks the sidecars that may have the message of a lease for it, by token and lease."""


class ReceiveAttempts:
    """Receives with an `attempt_id`, for one subscription."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        dispatcher: Dispatcher,
        notes: ProgressNotes,
        look: LeaseLook,
        moved: MovedBodies,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._dispatcher = dispatcher
        self._notes = notes
        self._look_up = look
        self._moved = moved
        self._elsewhere = elsewhere
        self._waiting: dict[str, Waiter] = {}
        self._answered = AnsweredMessages()

    async def receive(self, attempt_id: str, request: ReceiveRequest) -> Received:
        """Return the leases of the first request with this id if they are live, else new ones.

        Raises AttemptMismatchError, StoreError, DrainingError.
        """
        name = f"attempt:{self._state.name}:{attempt_id}"
        parameters = f"{request.max} {request.lease_ms} {request.bytes_max}"
        stored = await self._context.store.get(name)
        if stored is not None:
            before = msgspec.json.decode(stored, type=RememberedReceive)
            if before.parameters != parameters:
                raise AttemptMismatchError
            messages = await self._replay(before.leases)
            if messages:
                await self._notes.attach(messages)
                return Received(messages, replayed=True)
        received = await self._fresh(attempt_id, request)
        if received.messages:
            await self._remember(name, parameters, request, received)
        return received

    async def _fresh(self, attempt_id: str, request: ReceiveRequest) -> Received:
        """Wait for new messages; end an earlier request with this id that still waits."""
        earlier = self._waiting.get(attempt_id)
        if earlier is not None:
            self._dispatcher.end(earlier)
        mine: list[Waiter] = []

        def started(waiter: Waiter) -> None:
            mine.append(waiter)
            self._waiting[attempt_id] = waiter

        try:
            return await self._dispatcher.receive(request, started)
        finally:
            if mine and self._waiting.get(attempt_id) is mine[0]:
                del self._waiting[attempt_id]

    async def _remember(
        self, name: str, parameters: str, request: ReceiveRequest, received: Received
    ) -> None:
        entry = RememberedReceive(parameters, [message.lease for message in received.messages])
        lease_ms = request.lease_ms or self._state.settings.lease_ms
        try:
            await self._context.store.put(name, msgspec.json.encode(entry), lease_ms)
        except BaseException:
            self._dispatcher.give_back(received.messages)
            raise
        now_ms = self._context.clock.monotonic_ms()
        self._answered.keep(received.messages, now_ms, now_ms + lease_ms)

    async def _replay(self, leases: list[str]) -> list[Delivery]:
        """Return those leases that are still live, with their bodies and current deadlines.

        If some bodies can't be had now, those leases are left out; the call fails if none can.
        """
        found = await asyncio.gather(*map(self._again, leases), return_exceptions=True)
        messages = [each for each in found if isinstance(each, Delivery)]
        for each in found:
            if isinstance(each, BaseException) and not (messages and isinstance(each, StoreError)):
                raise each
        return messages

    async def _again(self, lease: str) -> Delivery | None:
        view = await self._look_up(lease)
        if view.state != "leased" or view.late or view.deadline_ms is None:
            self._answered.forget(lease)
            return None
        kept = self._answered.find(lease)
        if kept is not None:
            return replace(kept, attempt=view.attempt, deadline_ms=view.deadline_ms)
        try:
            token = self._context.keys.open(lease)
        except (BadTokenError, UnknownKeyError):
            return None
        now_ms = self._context.clock.monotonic_ms
        ask_ms, end_ms = now_ms(), now_ms() + BODY_WAIT_MS
        while now_ms() < end_ms:
            message = await self._fetched(token, lease)
            if message is None and self._elsewhere is not None and now_ms() >= ask_ms:
                message = await self._elsewhere(token, lease)
                ask_ms = now_ms() + ELSEWHERE_POLL_MS
            if message is not None:
                return replace(message, attempt=view.attempt, deadline_ms=view.deadline_ms)
            await asyncio.sleep(BODY_POLL_MS / 1000)
        raise StoreError("no sidecar has fetched the leased message yet; repeat the request")

    async def leased(self, lease: str) -> Delivery | None:
        """Return the message of a lease, if this sidecar has its body: in its own partition, or in
        its copy. The attempt and the deadline of the answer are 0.
        """
        try:
            token = self._context.keys.open(lease)
        except (BadTokenError, UnknownKeyError):
            return None
        return await self._fetched(token, lease)

    async def _fetched(self, token: Token, lease: str) -> Delivery | None:
        partition = self._partitions.by_ledger.get((token.topic_id, token.partition))
        entry = None if partition is None else partition.ledger.entry(token.offset)
        body = None if entry is None else entry.body
        most = self._state.settings.attempts_max
        if partition is not None and entry is not None and isinstance(body, Record):
            return partition.message(lease, body, 0, most, entry.first_s * 1000, 0)
        return await self._moved.message(token, lease, most)
