"""A message as the broker delivered it, and one as it is sent."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from ackd_adapters.rocketmq.protocol.definition_pb2 import (
    Encoding,
    Message,
    MessageType,
    Resource,
    SystemProperties,
)
from ackd_adapters.rocketmq.zipped import unzipped

_ANY_ZIP: Final = 47
"""zlib's number for "gzip or zlib, look at its head"."""
_EPOCH_S: Final = 1_609_459_200
"""2021-01-01, where the seconds in a message id begin."""
_COPY_FIELD: Final = 4
_BROKER_FIELD: Final = 5


@dataclass(slots=True)
class Taken:
    """One message under a hold of the broker.

    `queue`, `offset`: where it is stored, which is another topic when the broker has made a copy of
    it for a retry; `message_id` stays. `attempt`: how often the broker has delivered it, which it
    sometimes forgets. Times in Unix milliseconds.
    """

    message_id: str
    topic: str
    queue: int
    offset: int
    handle: str
    attempt: int
    body: bytes
    tag: str = ""
    keys: tuple[str, ...] = ()
    group: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    born_ms: int = 0
    stored_ms: int = 0

    @property
    def broker(self) -> str:
        """The name of the broker that delivered it; empty if the handle does not tell."""
        return broker_of(self.handle)

    @property
    def copied(self) -> bool:
        """Whether it lies in the broker's own topic of retries."""
        return _word(self.handle, _COPY_FIELD) not in ("", "0")


def broker_of(handle: str) -> str:
    """The broker's name in a handle, whose words have spaces between them."""
    return _word(handle, _BROKER_FIELD)


def _word(handle: str, at: int) -> str:
    words = handle.split(" ", at + 1)
    return words[at] if len(words) > at else ""


def taken(message: Message, bytes_max: int) -> Taken:
    """Read the wire message. Raises BrokerError when the body can't be unpacked or is too large."""
    system = message.system_properties
    return Taken(
        system.message_id,
        message.topic.name,
        system.queue_id,
        system.queue_offset if system.HasField("queue_offset") else -1,
        system.receipt_handle,
        system.delivery_attempt,
        _unpack(message.body, system.body_encoding, bytes_max),
        system.tag,
        tuple(system.keys),
        system.message_group,
        dict(message.user_properties),
        system.born_timestamp.ToMilliseconds(),
        system.store_timestamp.ToMilliseconds(),
    )


def _unpack(body: bytes, encoding: Encoding, bytes_max: int) -> bytes:
    if encoding != Encoding.GZIP:
        return body
    return unzipped(body, bytes_max, _ANY_ZIP)


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a sent message is stored; `offset` -1 for one that waits for its due time."""

    message_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class MessageToSend:
    """A message to send. `group`: of a FIFO topic; `due_ms`: when the broker shall deliver it."""

    topic: str
    body: bytes
    tag: str = ""
    keys: tuple[str, ...] = ()
    group: str = ""
    due_ms: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


class MessageIds:
    """Ids as RocketMQ 5's clients make them: version, host, process, seconds, number; hex."""

    def __init__(self) -> None:
        # Random instead of a network card's number, which may be the same in many containers.
        host, process = uuid.uuid4().int & 0xFFFFFFFFFFFF, os.getpid() & 0xFFFF
        self._head = f"01{host:012X}{process:04X}"
        self._numbers = itertools.count()

    def make(self, now_ms: int) -> str:
        seconds = (now_ms // 1000 - _EPOCH_S) & 0xFFFFFFFF
        return f"{self._head}{seconds:08X}{next(self._numbers) & 0xFFFFFFFF:08X}"


def wire(
    outgoing: MessageToSend, namespace: str, message_id: str, now_ms: int, host: str
) -> Message:
    """Make the protocol's message out of one to publish."""
    kind = MessageType.NORMAL
    if outgoing.group:
        kind = MessageType.FIFO
    elif outgoing.due_ms:
        kind = MessageType.DELAY
    system = SystemProperties(
        message_id=message_id,
        keys=outgoing.keys,
        body_encoding=Encoding.IDENTITY,
        message_type=kind,
        born_timestamp=stamp(now_ms),
        born_host=host,
    )
    if outgoing.tag:
        system.tag = outgoing.tag
    if outgoing.group:
        system.message_group = outgoing.group
    if outgoing.due_ms:
        system.delivery_timestamp.CopyFrom(stamp(outgoing.due_ms))
    return Message(
        topic=Resource(resource_namespace=namespace, name=outgoing.topic),
        user_properties=outgoing.properties,
        system_properties=system,
        body=outgoing.body,
    )


def stamp(unix_ms: int) -> Timestamp:
    """Milliseconds as a protobuf timestamp."""
    made = Timestamp()
    made.FromMilliseconds(unix_ms)
    return made
