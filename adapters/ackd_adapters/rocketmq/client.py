"""What ackd asks of RocketMQ: receive under a hold, ack, change a hold, dead-letter, send, routes.

Nothing here repeats a call, except as `sender` says. `holds` keeps the rules of a handle (only the
newest counts, one call at a time).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ackd.errors import BrokerError
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.message import MessageToSend, Sent, Taken, taken, wire
from ackd_adapters.rocketmq.protocol import service_pb2 as pb
from ackd_adapters.rocketmq.protocol.definition_pb2 import (
    Code,
    FilterExpression,
    FilterType,
    MessageQueue,
    Resource,
)
from ackd_adapters.rocketmq.rpc import (
    ACK,
    BATCH_MAX,
    CHANGE,
    QUERY_ROUTE,
    RECEIVE,
    SEND,
    TO_DEAD,
    UNREACHABLE,
    Rpc,
    code_name,
    ensure,
)
from ackd_adapters.rocketmq.session import duration

EVERYTHING: Final = FilterExpression(type=FilterType.TAG, expression="*")
SQL92: Final = "sql92:"
_NOTHING_NOW: Final = frozenset({Code.MESSAGE_NOT_FOUND})


def expression(text: str) -> FilterExpression:
    """A filter: tags with `||` between them, or an expression on properties; empty = everything."""
    if text.startswith(SQL92):
        return FilterExpression(type=FilterType.SQL, expression=text.removeprefix(SQL92).strip())
    return FilterExpression(type=FilterType.TAG, expression=text) if text else EVERYTHING


def code_of(error: BrokerError) -> str:
    """The broker's name of a failure."""
    return str(error.facts.get("code", ""))


class HeldMessage(NamedTuple):
    """What an ack or a change needs to know of a message."""

    message_id: str
    handle: str


class GroupClient:
    """One client of one group, or of none, on connections that others own."""

    def __init__(self, rpc: Rpc, options: RocketMQOptions, group: str = "") -> None:
        self._rpc = rpc
        self._options = options
        self.group = self.resource(group)

    def resource(self, name: str) -> Resource:
        """A topic or group as a protocol resource."""
        return Resource(resource_namespace=self._options.namespace, name=name)

    async def route(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic by broker and number; empty: no such topic.

        Raises BrokerError.
        """
        request = pb.QueryRouteRequest(topic=self.resource(topic))
        answer = await self._rpc.call(QUERY_ROUTE, request)
        if answer.status.code == Code.TOPIC_NOT_FOUND:
            return []
        ensure(f"route of {topic}", answer.status)
        queues = [each for each in answer.message_queues if each.permission != 1 << 1]
        return sorted(queues, key=lambda each: (each.broker.name, each.id))

    async def receive(
        self,
        queue: MessageQueue,
        *,
        most: int = BATCH_MAX,
        hold_ms: int,
        poll_ms: int,
        expression: FilterExpression = EVERYTHING,
        attempt_id: str = "",
    ) -> list[Taken]:
        """Up to 32 messages of the topic on the queue's broker (from all its queues there), each
        held for `hold_ms`. Waits for `poll_ms` when there are none. Raises BrokerError.

        Do not cancel it: what a cancelled call had taken comes again only after seconds.
        `attempt_id`: the same id again returns the same messages of an orderly group again.
        """
        request = pb.ReceiveMessageRequest(
            group=self.group,
            message_queue=queue,
            filter_expression=expression,
            batch_size=min(most, BATCH_MAX),
            invisible_duration=duration(hold_ms),
            long_polling_timeout=duration(poll_ms),
        )
        if attempt_id:
            request.attempt_id = attempt_id
        found: list[Taken] = []
        limit_ms = poll_ms + self._options.request_timeout_ms
        try:
            async for answer in self._rpc.stream(RECEIVE, request, limit_ms):
                if answer.HasField("message"):
                    found.append(taken(answer.message, self._options.message_bytes_max))
                elif answer.HasField("status") and answer.status.code not in _NOTHING_NOW:
                    ensure("receive", answer.status)
        except BrokerError:
            if not found:
                raise
            # Cut off in the middle: what has come is ours, the rest comes again.
        return found

    async def ack(self, topic: str, held: Sequence[HeldMessage]) -> list[str]:
        """Settle messages for good in one call. The broker's code for each, `OK` when it is done.

        Raises BrokerError when there was no answer: then the result is unknown.
        """
        entries = [pb.AckMessageEntry(message_id=one, receipt_handle=two) for one, two in held]
        request = pb.AckMessageRequest(
            group=self.group, topic=self.resource(topic), entries=entries
        )
        answer = await self._rpc.call(ACK, request)
        if len(answer.entries) != len(held):
            ensure("ack", answer.status)
            return [code_name(answer.status)] * len(held)
        by_handle = {each.receipt_handle: code_name(each.status) for each in answer.entries}
        in_order = [code_name(each.status) for each in answer.entries]
        return [by_handle.get(one.handle, each) for one, each in zip(held, in_order, strict=True)]

    async def change(self, topic: str, held: HeldMessage, hold_ms: int) -> str:
        """Hold the message from now on for `hold_ms` (0: it comes again at once). Returns the new
        handle, the only one that counts from here on. Raises BrokerError.
        """
        answer = await self._rpc.call(
            CHANGE,
            pb.ChangeInvisibleDurationRequest(
                group=self.group,
                topic=self.resource(topic),
                receipt_handle=held.handle,
                message_id=held.message_id,
                invisible_duration=duration(hold_ms),
            ),
        )
        ensure("change", answer.status)
        return answer.receipt_handle

    async def give_up(self, topic: str, held: HeldMessage, attempt: int, attempts_max: int) -> None:
        """Let the broker move it to the group's own dead-letter topic. Raises BrokerError."""
        answer = await self._rpc.call(
            TO_DEAD,
            pb.ForwardMessageToDeadLetterQueueRequest(
                group=self.group,
                topic=self.resource(topic),
                receipt_handle=held.handle,
                message_id=held.message_id,
                delivery_attempt=attempt,
                max_delivery_attempts=attempts_max,
            ),
        )
        ensure("give up", answer.status)

    async def send(self, outgoing: MessageToSend, message_id: str, now_ms: int, host: str) -> Sent:
        """Send a message once, without repeats. Raises BrokerError."""
        message = wire(outgoing, self._options.namespace, message_id, now_ms, host)
        answer = await self._rpc.call(SEND, pb.SendMessageRequest(messages=[message]))
        if not answer.entries:
            ensure("send", answer.status)
            raise BrokerError("send: an answer without a result", code=UNREACHABLE)
        entry = answer.entries[0]
        ensure("send", entry.status if entry.HasField("status") else answer.status)
        return Sent(entry.message_id or message_id, -1 if outgoing.due_ms else entry.offset)
