"""Stands between ackd and a real RocketMQ's gRPC proxy: hands each call on, keeps back or loses the
answers of one kind on command, and watches how handles are used.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio

from ackd_adapters.rocketmq.protocol import service_pb2 as pb
from ackd_adapters.rocketmq.protocol.definition_pb2 import Code
from ackd_adapters.rocketmq.rpc import ACK, CHANGE, RECEIVE, TELEMETRY

_ACK_PATH = f"/apache.rocketmq.v2.MessagingService/{ACK.name}"
Context = aio.ServicerContext[bytes, bytes]
Act = Callable[[bytes], Awaitable[bytes]]


class Between(grpc.GenericRpcHandler):
    """`wrong`: what nobody may do with a handle. `delivered`: how often the broker handed a message
    over; `changes`: for how long each change was to hide one; `acks`: handles whose ack is answered
    OK; `lost`: how many answers got lost; `polls`: how many are under way, or were cancelled.
    `swallows`: which messages, by their bodies, never arrive; `swallowed`: those that did not;
    `forgets`: the broker brings none of them again.
    """

    def __init__(self) -> None:
        self.endpoints = ""
        self.wrong: list[str] = []
        self.delivered = 0
        self.changes: list[int] = []
        self.acks: list[str] = []
        self.lost = self.polls = 0
        self.swallows: Callable[[bytes], bool] = lambda _: False
        self.swallowed: list[bytes] = []
        self.forgets = True
        self._kept: dict[str, asyncio.Event] = {}
        self._to_lose: list[str] = []
        self._used: set[str] = set()
        self._pending: set[str] = set()
        self._up: aio.Channel | None = None

    def keep(self, method: str) -> asyncio.Event:
        """The broker does what it is asked; its answers wait here for the event."""
        return self._kept.setdefault(method, asyncio.Event())

    def lose(self, method: str) -> None:
        """The broker does what it is asked next; the answer gets lost."""
        self._to_lose.append(method)

    # --- calls

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """See gRPC: who takes the call."""
        path = handler_call_details.method
        name = path.rpartition("/")[2]
        up = self._up
        assert up is not None

        async def unary(request: bytes, context: Context) -> bytes:
            send: aio.UnaryUnaryMultiCallable[bytes, bytes] = up.unary_unary(path)
            make = {CHANGE.name: self._change, ACK.name: self._ack}.get(name)

            async def answered(data: bytes) -> bytes:
                answer: bytes = await send(data, **_passed_on(context))
                if name in self._kept:
                    await self._kept[name].wait()
                return answer

            answer = await (answered(request) if make is None else make(request, answered))
            if name in self._to_lose:
                self._to_lose.remove(name)
                self.lost += 1
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
            return answer

        async def stream(request: bytes, context: Context) -> AsyncIterator[bytes]:
            ask: aio.UnaryStreamMultiCallable[bytes, bytes] = up.unary_stream(path)
            self.polls += 1
            async for each in ask(request, **_passed_on(context)):
                found = pb.ReceiveMessageResponse.FromString(each)
                self.delivered += found.HasField("message")
                if found.HasField("message") and self.swallows(found.message.body):
                    await self._swallow(
                        pb.ReceiveMessageRequest.FromString(request), found, context
                    )
                else:
                    yield each
            self.polls -= 1

        async def talk(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
            tell: aio.StreamStreamMultiCallable[bytes, bytes] = up.stream_stream(path)
            async for each in tell(requests, **_passed_on(context)):
                yield each

        if name == RECEIVE.name:
            return grpc.unary_stream_rpc_method_handler(stream)
        if name == TELEMETRY.name:
            return grpc.stream_stream_rpc_method_handler(talk)
        return grpc.unary_unary_rpc_method_handler(unary)

    async def _swallow(
        self, asked: pb.ReceiveMessageRequest, found: pb.ReceiveMessageResponse, context: Context
    ) -> None:
        """Lose it on the way. With `forgets` the broker never brings it again, as after a poll that
        it lost itself.
        """
        message = found.message
        self.swallowed.append(message.body)
        if not self.forgets:
            return
        system = message.system_properties
        entry = pb.AckMessageEntry(
            message_id=system.message_id, receipt_handle=system.receipt_handle
        )
        request = pb.AckMessageRequest(group=asked.group, topic=message.topic, entries=[entry])
        up = self._up
        assert up is not None
        ack: aio.UnaryUnaryMultiCallable[bytes, bytes] = up.unary_unary(_ACK_PATH)
        answer = pb.AckMessageResponse.FromString(
            await ack(request.SerializeToString(), **_passed_on(context))
        )
        assert answer.status.code == Code.OK, answer

    async def _change(self, request: bytes, act: Act) -> bytes:
        found = pb.ChangeInvisibleDurationRequest.FromString(request)
        handle = found.receipt_handle
        self._begin([handle])
        if handle in self._used:
            self.wrong.append("two changes by one handle fork the message")
        if handle in self.acks:
            self.wrong.append("a change after the ack revives the message")
        self._used.add(handle)
        self.changes.append(found.invisible_duration.ToMilliseconds())
        try:
            return await act(request)
        finally:
            self._pending.discard(handle)

    async def _ack(self, request: bytes, act: Act) -> bytes:
        handles = [each.receipt_handle for each in pb.AckMessageRequest.FromString(request).entries]
        self._begin(handles)
        if self._used & {*handles}:
            self.wrong.append("an ack by an older handle says OK and is worth nothing")
        try:
            answer = await act(request)
        finally:
            self._pending.difference_update(handles)
        self.acks += handles
        return answer

    def _begin(self, handles: list[str]) -> None:
        if self._pending & {*handles}:
            self.wrong.append("two calls about one handle at a time")
        self._pending.update(handles)


def _passed_on(context: Context) -> dict[str, Any]:
    """What the client says about itself, and how long it waits."""
    found = context.invocation_metadata() or ()
    said = [(name, value) for name, value in found if name.startswith("x-mq-")]
    return {"metadata": said, "timeout": context.time_remaining()}


@asynccontextmanager
async def between(endpoints: str) -> AsyncIterator[Between]:
    """One before this proxy. Asserts at the end that nothing wrong was seen."""
    it = Between()
    server = aio.server()
    server.add_generic_rpc_handlers((it,))
    it.endpoints = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    async with aio.insecure_channel(endpoints) as up:
        it._up = up
        await server.start()
        try:
            yield it
        finally:
            await server.stop(None)
    assert not it.wrong
