"""A client's session with the proxies: settings sent and confirmed, and heartbeats.

The broker delivers nothing to a client whose settings it does not have, and forgets them when it
restarts. So the stream that carries them is opened again as soon as it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.duration_pb2 import Duration
from grpc import aio

from ackd.errors import BrokerError
from ackd_adapters.rocketmq.protocol import service_pb2 as pb
from ackd_adapters.rocketmq.protocol.definition_pb2 import (
    UA,
    ClientType,
    Code,
    FilterExpression,
    Language,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from ackd_adapters.rocketmq.rpc import (
    CLIENT_VERSION,
    GOODBYE,
    HEARTBEAT,
    TELEMETRY,
    UNREACHABLE,
    Rpc,
    ensure,
)

LOG = logging.getLogger("ackd.rocketmq")

HEARTBEAT_S: Final = 10.0
REOPEN_S: Final = 0.2
"""Constant: nothing is received without a session."""
GOODBYE_MS: Final = 1_000


class Session:
    """`run` keeps it until cancelled. `group` None: it only sends."""

    def __init__(self, rpc: Rpc, settings: Settings, group: Resource | None) -> None:
        self.settings = settings
        self.attempts_max = 0
        """The group's deliveries after which the broker itself gives a message up; 0 = unknown."""
        self.orderly = False
        """The group gets the messages of a queue one after the other."""
        self.refusal: BrokerError | None = None
        """Why the last try to open it failed; None while it is open."""
        self._rpc = rpc
        self._group = group
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        """Start the session's task; it connects by itself. `ended` gets the task if it ends."""
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="rocketmq.session")
            self._task.add_done_callback(ended)

    @property
    def open(self) -> bool:
        """Whether the broker has our settings."""
        return self._ready.is_set()

    async def ready(self, timeout_s: float) -> None:
        """Wait until the broker has our settings. Raises BrokerError with its reason."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            unknown = BrokerError("the broker does not answer", code=UNREACHABLE)
            raise self.refusal or unknown from None

    async def close(self) -> None:
        """Say goodbye (bounded) and stop. Never raises."""
        task, self._task = self._task, None
        if task is None:
            return
        was_open = self.open
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if was_open:
            try:
                await self._rpc.call(
                    GOODBYE, pb.NotifyClientTerminationRequest(group=self._group), GOODBYE_MS
                )
            except BrokerError as error:
                LOG.debug("the broker did not take the good-bye of this client: %s", error.detail)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._listen())
                    tasks.create_task(self._beat())
            except* BrokerError as errors:
                first = errors.exceptions[0]
                if isinstance(first, BrokerError):
                    self.refusal = first
            self._ready.clear()
            await asyncio.sleep(REOPEN_S)

    async def _listen(self) -> None:
        """Send the settings, wait for their confirmation, then only answer. Ends with an error."""
        call = self._rpc.talk(TELEMETRY)
        try:
            await call.write(pb.TelemetryCommand(settings=self.settings))
            async for command in call:
                if command.HasField("settings"):
                    self._confirmed(command.settings)
                elif command.status.code not in (Code.OK, Code.CODE_UNSPECIFIED):
                    ensure("settings", command.status)
                elif command.HasField("verify_message_command"):
                    await call.write(_unsupported(command.verify_message_command.nonce))
        except aio.AioRpcError as error:
            raise self._rpc.failed("session", error) from None
        except asyncio.InvalidStateError:  # The stream ended while we wrote.
            raise BrokerError("session: ended", code=UNREACHABLE) from None
        finally:
            call.cancel()
        raise BrokerError("session: ended by the broker", code=UNREACHABLE)

    def _confirmed(self, settings: Settings) -> None:
        if settings.HasField("backoff_policy"):
            self.attempts_max = settings.backoff_policy.max_attempts
        self.orderly = settings.subscription.fifo
        self.refusal = None
        self._ready.set()

    async def _beat(self) -> None:
        request = pb.HeartbeatRequest(group=self._group, client_type=self.settings.client_type)
        await self._ready.wait()
        while True:
            ensure("heartbeat", (await self._rpc.call(HEARTBEAT, request)).status)
            await asyncio.sleep(HEARTBEAT_S)


def _unsupported(nonce: str) -> pb.TelemetryCommand:
    """An operator asked this very client to consume a message; ackd can't do that."""
    made = pb.TelemetryCommand(verify_message_result=pb.VerifyMessageResult(nonce=nonce))
    made.status.code = Code.NOT_IMPLEMENTED
    return made


def consumer_settings(
    group: Resource, filters: Mapping[str, FilterExpression], poll_ms: int
) -> Settings:
    """Settings of a client that receives. `filters` by topic; they are subject to the namespace,
    too.
    """
    entries = [
        SubscriptionEntry(
            topic=Resource(resource_namespace=group.resource_namespace, name=topic),
            expression=expression,
        )
        for topic, expression in filters.items()
    ]
    made = _settings(ClientType.SIMPLE_CONSUMER)
    made.subscription.CopyFrom(
        Subscription(group=group, subscriptions=entries, long_polling_timeout=duration(poll_ms))
    )
    return made


def _settings(kind: ClientType) -> Settings:
    agent = UA(
        language=Language.PYTHON,
        version=CLIENT_VERSION,
        platform=sys.platform,
        hostname=os.uname().nodename,
    )
    return Settings(client_type=kind, user_agent=agent, request_timeout=duration(3_000))


def duration(length_ms: int) -> Duration:
    """Milliseconds as the wire has them."""
    made = Duration()
    made.FromMilliseconds(length_ms)
    return made
