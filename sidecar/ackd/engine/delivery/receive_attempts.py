"""Answer a repeated receive whose answer was lost: the same `attempt_id` gets the same leases (rule
R21).

The store keeps the id for as long as the leases last. Bodies are only in this sidecar, so the
sidecar that granted the leases honours the repeat, also after its restart.
"""

from __future__ import annotations

import asyncio

import msgspec

from ackd.api.messages import Delivery, Received, ReceiveRequest
from ackd.core.lease import BadTokenError, UnknownKeyError
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.delivery.dispatcher import Dispatcher, Waiter
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.settlement.notes import ProgressNotes
from ackd.engine.settlement.settle import Settler
from ackd.errors import AttemptMismatchError, StoreError
from ackd.ports import Record

BODY_WAIT_MS = 3_000
BODY_POLL_MS = 20


class RememberedReceive(msgspec.Struct):
    """What the store keeps of a receive: its parameters and the tokens of its leases."""

    parameters: str
    leases: list[str]


class ReceiveAttempts:
    """Receives with an `attempt_id`, for one subscription."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        dispatcher: Dispatcher,
        notes: ProgressNotes,
        settler: Settler,
    ) -> None:
        self._state = state
        self._context = context
        self._partitions = partitions
        self._dispatcher = dispatcher
        self._notes = notes
        self._settler = settler
        self._waiting: dict[str, Waiter] = {}

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
            earlier.gone = True
            earlier.answer()
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

    async def _replay(self, leases: list[str]) -> list[Delivery]:
        """Return those leases that are still live, with their bodies and current deadlines."""
        found = [await self._again(lease) for lease in leases]
        return [delivery for delivery in found if delivery is not None]

    async def _again(self, lease: str) -> Delivery | None:
        view = await self._settler.look(lease)
        if view.state != "leased" or view.late or view.deadline_ms is None:
            return None
        try:
            token = self._context.keys.open(lease)
        except (BadTokenError, UnknownKeyError):
            return None
        for _ in range(BODY_WAIT_MS // BODY_POLL_MS):
            ledger_of = self._partitions.by_ledger
            partition = ledger_of.get((token.topic_id, token.partition))
            entry = None if partition is None else partition.ledger.entry(token.offset)
            body = None if entry is None else entry.body
            if partition is not None and entry is not None and isinstance(body, Record):
                most = self._state.settings.attempts_max + 1
                first_ms, until_ms = entry.first_s * 1000, view.deadline_ms
                return partition.message(lease, body, view.attempt, most, first_ms, until_ms)
            await asyncio.sleep(BODY_POLL_MS / 1000)
        raise StoreError("this sidecar has not fetched the leased message yet; repeat the request")
