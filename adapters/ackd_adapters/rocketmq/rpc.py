"""Calls to RocketMQ's gRPC proxies: connections, headers, signatures, and what a status means.

Source: the protocol `apache.rocketmq.v2` and the access-key signature of RocketMQ's ACL 2.0.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

import grpc
from grpc import aio

from ackd.errors import BrokerError
from ackd_adapters.rocketmq.config import RocketMQOptions, Secrets, addresses, read_secrets
from ackd_adapters.rocketmq.protocol import service_pb2 as pb
from ackd_adapters.rocketmq.protocol.definition_pb2 import Code, Status

Q = TypeVar("Q")
A = TypeVar("A")

PROTOCOL: Final = "GRPC_V2"
CLIENT_VERSION: Final = "5.0.0"
_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
_RESPONSE_EXTRA_BYTES: Final = 1024 * 1024
BATCH_MAX: Final = 32
"""The most messages that a broker returns at once."""

UNREACHABLE: Final = "UNREACHABLE"
"""The code of a call without an answer because there was no connection."""

NO_ANSWER: Final = "NO_ANSWER"
"""The code of a call that was sent and not answered in time: it may have taken effect."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """A method of the service, and how its messages are encoded and decoded."""

    name: str
    write: Callable[[Q], bytes]
    read: Callable[[bytes], A]


QUERY_ROUTE = Method(
    "QueryRoute", pb.QueryRouteRequest.SerializeToString, pb.QueryRouteResponse.FromString
)
SEND = Method(
    "SendMessage", pb.SendMessageRequest.SerializeToString, pb.SendMessageResponse.FromString
)
RECEIVE = Method(
    "ReceiveMessage",
    pb.ReceiveMessageRequest.SerializeToString,
    pb.ReceiveMessageResponse.FromString,
)
ACK = Method("AckMessage", pb.AckMessageRequest.SerializeToString, pb.AckMessageResponse.FromString)
CHANGE = Method(
    "ChangeInvisibleDuration",
    pb.ChangeInvisibleDurationRequest.SerializeToString,
    pb.ChangeInvisibleDurationResponse.FromString,
)
TO_DEAD = Method(
    "ForwardMessageToDeadLetterQueue",
    pb.ForwardMessageToDeadLetterQueueRequest.SerializeToString,
    pb.ForwardMessageToDeadLetterQueueResponse.FromString,
)
HEARTBEAT = Method(
    "Heartbeat", pb.HeartbeatRequest.SerializeToString, pb.HeartbeatResponse.FromString
)
TELEMETRY = Method(
    "Telemetry", pb.TelemetryCommand.SerializeToString, pb.TelemetryCommand.FromString
)
GOODBYE = Method(
    "NotifyClientTermination",
    pb.NotifyClientTerminationRequest.SerializeToString,
    pb.NotifyClientTerminationResponse.FromString,
)


class Rpc:
    """Connections to the proxies under one client id. Every call raises BrokerError, whose `code`
    is the broker's own name of it, or one of the two above.
    """

    def __init__(self, options: RocketMQOptions, client_id: str) -> None:
        self.client_id = client_id
        self._options = options
        self._secrets = Secrets()
        self._channels: list[aio.Channel] = []
        self._now = 0

    async def start(self) -> None:
        """Make the connection objects; nothing is sent yet. Raises ConfigError."""
        _keep_poller()
        self._secrets = await asyncio.to_thread(read_secrets, self._options)
        self._channels = [self._channel(address) for address in addresses(self._options)]

    async def close(self) -> None:
        """Cancel pending calls. Never raises."""
        channels, self._channels = self._channels, []
        for channel in channels:
            await channel.close()

    def _channel(self, address: str) -> aio.Channel:
        most = self._options.message_bytes_max + _RESPONSE_EXTRA_BYTES
        options = [
            ("grpc.max_receive_message_length", most),
            ("grpc.max_send_message_length", most),
            # What the client documentation asks for: a connection gets at least 20 s to come up.
            # The pauses between tries are short, so that a restarted proxy is found at once.
            ("grpc.min_reconnect_backoff_ms", 20_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.enable_retries", 0),
        ]
        if not self._options.tls:
            return aio.insecure_channel(address, options)
        trust = grpc.ssl_channel_credentials(root_certificates=self._secrets.authorities)
        return aio.secure_channel(address, trust, options)

    def metadata(self) -> list[tuple[str, str | bytes]]:
        """The metadata of a call; they contain a signed time, so each call needs new ones."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        made: list[tuple[str, str | bytes]] = [
            ("x-mq-client-id", self.client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-protocol", PROTOCOL),
            ("x-mq-client-version", CLIENT_VERSION),
            ("x-mq-date-time", stamp),
        ]
        if self._options.namespace:
            made.append(("x-mq-namespace", self._options.namespace))
        if self._options.access_key is not None:
            made.append(("authorization", sign(self._options.access_key, self._secrets.key, stamp)))
        return made

    def _current(self) -> aio.Channel:
        if not self._channels:
            raise BrokerError("the connection is closed", code=UNREACHABLE)
        return self._channels[self._now % len(self._channels)]

    def failed(self, what: str, error: aio.AioRpcError) -> BrokerError:
        """The `BrokerError` for a call that the transport ended; the next call tries the next
        proxy.
        """
        code = error.code()
        if code in _LOST:
            self._now += 1
        return BrokerError(
            f"{what}: {error.details() or code.name}", code=_NAMES.get(code) or code.name
        )

    async def call(self, method: Method[Q, A], request: Q, timeout_ms: int | None = None) -> A:
        """One question, one answer; does not check the answer's status."""
        limit = (timeout_ms or self._options.request_timeout_ms) / 1000
        unary = self._current().unary_unary(
            _SERVICE + method.name,
            request_serializer=method.write,
            response_deserializer=method.read,
        )
        try:
            return await unary(request, timeout=limit, metadata=self.metadata())
        except aio.AioRpcError as error:
            raise self.failed(method.name, error) from None
        except asyncio.CancelledError:
            # A connection that is closed cancels its calls, which nobody did who waits for them.
            task = asyncio.current_task()
            if self._channels or task is None or task.cancelling():
                raise
            raise BrokerError(f"{method.name}: the connection was closed", code=NO_ANSWER) from None

    async def stream(self, method: Method[Q, A], request: Q, timeout_ms: int) -> AsyncIterator[A]:
        """One question, a stream of answers."""
        unary = self._current().unary_stream(
            _SERVICE + method.name,
            request_serializer=method.write,
            response_deserializer=method.read,
        )
        try:
            async for answer in unary(request, timeout=timeout_ms / 1000, metadata=self.metadata()):
                yield answer
        except aio.AioRpcError as error:
            raise self.failed(method.name, error) from None

    def talk(self, method: Method[Q, A]) -> aio.StreamStreamCall[Q, A]:
        """A stream both ways, open until it is cancelled."""
        made = self._current().stream_stream(
            _SERVICE + method.name,
            request_serializer=method.write,
            response_deserializer=method.read,
        )
        return made(metadata=self.metadata())


_LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_NAMES = {
    grpc.StatusCode.UNAVAILABLE: UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: NO_ANSWER,
    grpc.StatusCode.CANCELLED: NO_ANSWER,
}


@functools.cache
def _keep_poller() -> None:
    """Keep gRPC's poller for the life of the process: its end would block the event loop."""
    aio.init_grpc_aio()


def sign(access_key: str, secret_key: str, stamp: str) -> str:
    """The `authorization` header: an HMAC of the time that the call carries."""
    digest = hmac.new(secret_key.encode(), stamp.encode(), hashlib.sha1).hexdigest()
    return (
        f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    )


def code_name(status: Status) -> str:
    """The broker's name of a status."""
    try:
        return Code.Name(status.code)
    except ValueError:  # A code that is newer than our descriptors.
        return str(status.code)


def ensure(what: str, status: Status) -> None:
    """Raise BrokerError unless it is OK."""
    if status.code != Code.OK:
        raise BrokerError(f"{what}: {status.message}", code=code_name(status))
