"""One connection to a RocketMQ cluster: what the engine sees of it (`ackd.ports.Broker`)."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from ackd.errors import BrokerError, ConfigError, NotSupportedError
from ackd.ports import (
    Capabilities,
    Condition,
    Consumer,
    ConsumerSpec,
    DeadOrigin,
    Failure,
    NotStored,
    Outgoing,
    PublishResult,
    Record,
    Stored,
)
from ackd_adapters.rocketmq import envelope
from ackd_adapters.rocketmq.client import GroupClient, code_of
from ackd_adapters.rocketmq.config import RocketMQOptions
from ackd_adapters.rocketmq.consumer import RocketMQConsumer
from ackd_adapters.rocketmq.making import make_topic
from ackd_adapters.rocketmq.message import MessageIds
from ackd_adapters.rocketmq.protocol.definition_pb2 import MessageQueue, MessageType
from ackd_adapters.rocketmq.reading import RETRY, RocketMQReader, dead_origin
from ackd_adapters.rocketmq.remoting_admin import OFF, RemotingAdmin
from ackd_adapters.rocketmq.rpc import UNREACHABLE, Rpc

DAY_MS: Final = 86_400_000
ROUTE_S: Final = 10.0
SENDS_MAX: Final = 64
NAME_CHARS_MAX: Final = 127
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_FRAMING_BYTES: Final = 64 * 1024

_REFUSED: Final = frozenset(
    """ILLEGAL_TOPIC TOPIC_NOT_FOUND ILLEGAL_MESSAGE_TAG ILLEGAL_MESSAGE_KEY ILLEGAL_MESSAGE_GROUP
    ILLEGAL_MESSAGE_PROPERTY_KEY ILLEGAL_MESSAGE_ID ILLEGAL_DELIVERY_TIME MESSAGE_BODY_TOO_LARGE
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE MESSAGE_CORRUPTED MESSAGE_BODY_EMPTY PAYLOAD_TOO_LARGE
    MESSAGE_PROPERTIES_TOO_LARGE UNAUTHORIZED FORBIDDEN BAD_REQUEST UNSUPPORTED""".split()  # noqa: SIM905
)
_FIFO: Final = {MessageType.FIFO}
_WRONG_TYPE: Final = "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
_TYPE_UNKNOWN: Final = "the expected type is UNSPECIFIED"
"""A proxy says so of a message to a topic that does not exist, and of every message while it can't
ask the topic's brokers, as in a failover.
"""
_PRESSURE: Final = frozenset({"TOO_MANY_REQUESTS", "RESOURCE_EXHAUSTED"})

RETRY_PREFIX: Final = "ackd-retry-"
DEAD_PREFIX: Final = "ackd-dead-"

CAPABILITIES: Final = Capabilities(
    name="rocketmq",
    order_within_partition=False,
    explicit_partition=False,
    delayed_publish=True,
    delay_max_ms=DAY_MS,
    start_policies=frozenset(),
    seek_by_time=False,
    commit_metadata_chars=4_096,
    value_bytes_max=4 * 1024 * 1024 - _FRAMING_BYTES,
    broker_side_acks=True,
    reads_offsets=False,  # with `name_servers` it can, and makes topics
    makes_topics=False,
    filters=frozenset({"tag", "sql92"}),
    reserved=(
        RETRY_PREFIX,
        DEAD_PREFIX,
        "%RETRY%",
        "%DLQ%",
        "rmq_sys_",
        "RMQ_SYS_",
        "SCHEDULE_TOPIC_XXXX",
        "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
    ),
)


class RocketMQBroker:
    """A RocketMQ connection as `ackd.ports.Broker`."""

    def __init__(self, name: str, options: RocketMQOptions) -> None:
        self.name = name
        self._admin = RemotingAdmin(options)
        self.capabilities = dataclasses.replace(
            CAPABILITIES, reads_offsets=self._admin.on, makes_topics=self._admin.on
        )
        self._options = options
        self._rpc = Rpc(options, f"ackd-{name}-{uuid.uuid4().hex[:12]}")
        self._client = GroupClient(self._rpc, options)
        self._ids = MessageIds()
        self._host = os.uname().nodename
        self._routes: dict[str, tuple[float, list[MessageQueue]]] = {}
        self._sends = asyncio.Semaphore(SENDS_MAX)
        self._condition: Condition | None = None
        self._started = False

    async def start(self) -> None:
        """Asks for a topic that need not exist, to see that the proxies answer."""
        if not self._started:
            await self._rpc.start()
            await self._admin.start()
            self._started = True
        await self._client.route("ackd-no-such-topic")

    async def cluster_id(self) -> str:
        """A cluster does not report an id, so its name in the options serves as one."""
        return self._options.cluster

    def consumer(self, spec: ConsumerSpec) -> Consumer:
        """Raises `ConfigError` when the spec asks for what RocketMQ can't do."""
        wrong = [topic for topic in spec.topics if topic.startswith("^")]
        if wrong:
            raise ConfigError(f"no patterns of topics on RocketMQ: {', '.join(wrong)}")
        retries = [topic for topic in spec.topics if topic.startswith(RETRY)]
        if retries and spec.joins:
            raise ConfigError(
                f"the broker loses what is received from {retries[0]} when a hold ends; name it as "
                "`dead_letter_topic`, and redrive what is in it"
            )
        if not spec.joins:
            if not self._admin.on:
                raise NotSupportedError(OFF)
            return RocketMQReader(self._admin, spec, self._options.namespace)
        rpc = Rpc(self._options, f"ackd-{spec.client_id}-{uuid.uuid4().hex[:12]}")
        return RocketMQConsumer(self._options, spec, rpc, self._admin)

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        """Sends messages of one key one after the other, the rest in parallel."""
        by_key: dict[tuple[str, object], list[int]] = {}
        for index, each in enumerate(messages):
            key = index if each.key is None else each.key
            by_key.setdefault((each.topic, key), []).append(index)
        results: dict[int, PublishResult] = {}

        async def send(indices: list[int]) -> None:
            for index in indices:
                results[index] = await self._send(messages[index])

        async with asyncio.TaskGroup() as tasks:
            for indices in by_key.values():
                tasks.create_task(send(indices))
        return [results[index] for index in range(len(messages))]

    async def _send(self, message: Outgoing) -> PublishResult:
        now_ms = time.time_ns() // 1_000_000
        try:
            async with self._sends:
                queues = await self._route(message.topic)
                kinds = {kind for queue in queues for kind in queue.accept_message_types}
                refusal = self._refusal(message, kinds, known=bool(queues))
                if refusal:
                    return NotStored(Failure.REFUSED, "ILLEGAL_MESSAGE", refusal)
                due_ms = now_ms + message.delay_ms if message.delay_ms else 0
                made = envelope.outgoing(message, fifo=kinds == _FIFO, due_ms=due_ms)
                sent = await self._client.send(made, self._ids.make(now_ms), now_ms, self._host)
        except ValueError as error:
            return NotStored(Failure.REFUSED, "ILLEGAL_MESSAGE", str(error))
        except BrokerError as error:
            return self._not_stored(error, known=message.topic in self._routes)
        self._condition = None
        return Stored(message.topic, 0, sent.offset)

    def _refusal(self, message: Outgoing, kinds: set[MessageType], *, known: bool) -> str:
        """Why this message can never be stored; empty when it can."""
        if message.partition is not None:
            return "RocketMQ's proxy chooses the queue"
        if message.delay_ms and (known and kinds and MessageType.DELAY not in kinds):
            return f"{message.topic} is no topic for delayed messages (message.type DELAY)"
        if message.delay_ms > self.capabilities.delay_max_ms:
            return f"a delay is at most {self.capabilities.delay_max_ms} ms"
        if len(message.value or b"") > self.capabilities.value_bytes_max:
            return f"a body has at most {self.capabilities.value_bytes_max} bytes"
        return ""

    def _not_stored(self, error: BrokerError, *, known: bool) -> NotStored:
        """`known`: the topic was there before, so it is more likely away than not there."""
        code = code_of(error)
        kind = Failure.UNKNOWN
        if known and code == _WRONG_TYPE and _TYPE_UNKNOWN in error.detail:
            kind = Failure.NOT_STORED
        elif code in _REFUSED:
            kind = Failure.REFUSED
        elif code in _PRESSURE:
            kind = Failure.PRESSURE
        elif code == UNREACHABLE:
            self._condition = Condition("rocketmq/connection", error.detail, away=True)
        return NotStored(kind, code, error.detail)

    async def _route(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, from a short cache; a missing topic is asked for again."""
        now_s = time.monotonic()
        known = self._routes.get(topic)
        if known is not None and now_s - known[0] < ROUTE_S:
            return known[1]
        found = await self._client.route(topic)
        if found:
            self._routes[topic] = now_s, found
        return found

    async def partitions(self, topic: str) -> int | None:
        return len(await self._client.route(topic)) or None

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        """The proxies make no topics; a broker does, where `name_servers` tells of it."""
        if await self.partitions(topic) is None:
            queues = int(settings.get("partitions", 1))
            await make_topic(self._admin, self._client, topic, queues)

    async def dead_origins(self, records: Sequence[Record]) -> list[DeadOrigin | None]:
        """Where the broker's own dead letters came from."""
        return [dead_origin(each, self._options.namespace) for each in records]

    def dead_letter_topic(self, group: str) -> str:
        return _own(DEAD_PREFIX, group)

    def retry_topic(self, group: str) -> str:
        return _own(RETRY_PREFIX, group)

    def group_topic(self, group: str, topic: str) -> str:
        """Where the broker itself puts what a lost hold brings again: receives of the group get it
        with the topic. Orderly groups do not.
        """
        return f"{RETRY}{group}_{self._admin.full(topic)}"

    def conditions(self) -> list[Condition]:
        return [] if self._condition is None else [self._condition]

    async def close(self) -> None:
        await self._admin.close()
        await self._rpc.close()


def _own(prefix: str, group: str) -> str:
    """A name that is invalid, too long or could collide gets a hash."""
    name = prefix + group
    if _PLAIN.fullmatch(group) and len(name) <= NAME_CHARS_MAX and not group.endswith("-"):
        return name
    digest = "-" + blake2b(group.encode(), digest_size=5).hexdigest() + "-"
    return (prefix + re.sub(r"[^A-Za-z0-9_-]", "-", group))[: NAME_CHARS_MAX - len(digest)] + digest
