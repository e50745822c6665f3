"""The frames that sidecars send each other, in msgpack: one struct for each kind.

A frame is foreign input until its fields are checked. `read_frame` does that, and raises ValueError
for a frame with a field out of bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from ackd.api.messages import Delivery
from ackd.core.origin import Origin
from ackd.ports import Record
from ackd.unreadable import UNREADABLE

NUMBERS_MAX = 10_000
"""The most numbers in one `PeerLost`."""
MESSAGES_MAX = 10_000
"""The most messages in one `PeerAnswer`."""
MESSAGE_BYTES_MAX = 260 << 20
"""A longer message goes over no link: only an application beside its owner gets it. Adapters take
bodies of up to 256 MiB; the rest is for key and headers.
"""
BODY_BYTES_MAX = 16 << 20
"""The most bytes in the body of a question, and in that of its answer."""
_Count = Annotated[int, Meta(ge=0, le=(1 << 53))]
_Offset = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Partition = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_TopicId = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Name = Annotated[str, Meta(max_length=256)]


class PeerAsk(Struct, tag="ask", array_like=True, frozen=True):
    """Lease up to `max` messages; wait for the first one for `wait_ms`.

    `number` names the request; a process uses each number once. `holder` names the caller, for
    `explain`. `taken`: earlier requests whose answers were taken, as in `PeerTaken`.
    """

    subscription: _Name
    number: _Count
    max: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)]
    bytes_max: _Count
    lease_ms: _Count
    wait_ms: _Count
    holder: Annotated[str, Meta(max_length=1024)]
    taken: Annotated[list[_Count], Meta(max_length=NUMBERS_MAX)] = []


class PeerCancel(Struct, tag="cancel", array_like=True, frozen=True):
    """Stop waiting: nobody needs the messages any more. The owner answers the request at once."""

    subscription: _Name
    number: _Count


class PeerTaken(Struct, tag="taken", array_like=True, frozen=True):
    """The receive that asked has its answer: the application holds these leases now.

    Sent on its own only if no `PeerAsk` follows soon.
    """

    subscription: _Name
    number: _Count


class PeerLost(Struct, tag="lost", array_like=True, frozen=True):
    """No application has got, or will get, answers to these requests: give their leases back."""

    subscription: _Name
    numbers: Annotated[list[_Count], Meta(max_length=NUMBERS_MAX)]


class PeerWatch(Struct, tag="watch", array_like=True, frozen=True):
    """Start (`on`) or stop to send `PeerReady` when messages are ready that no receive wants."""

    subscription: _Name
    on: bool


class PeerMessage(Struct, array_like=True, frozen=True):
    """A `Delivery` in a frame. `origin`: cluster, topic id, topic, partition, offset."""

    lease: str
    topic: str
    partition: _Partition
    offset: _Offset
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int
    attempt: _Count
    attempts_max: _Count
    first_seen_ms: _Count
    deadline_ms: _Count
    note: str | None = None
    origin: tuple[str, _TopicId, str, _Partition, _Offset] | None = None


class PeerAnswer(Struct, tag="answer", array_like=True, frozen=True):
    """The answer to a `PeerAsk`. It has no messages if the wait is over or none can be granted.

    `waited_ms`: the owner asked the store for these leases at least this long after the request
    came. `ready`: the messages that the owner has left.
    """

    subscription: _Name
    number: _Count
    waited_ms: _Count
    ready: _Count
    messages: Annotated[list[PeerMessage], Meta(max_length=MESSAGES_MAX)]


class PeerReady(Struct, tag="ready", array_like=True, frozen=True):
    """The sender has `ready` messages of this subscription that no receive waits for.

    It is not sent to a sidecar that knows this from the last `PeerAnswer`.
    """

    subscription: _Name
    ready: _Count


class PeerExpired(Struct, tag="expired", array_like=True, frozen=True):
    """`count` leases that the receiver's application held have expired. The receiver's circuit
    breaker counts them as failures.
    """

    subscription: _Name
    count: _Count


class PeerQuestion(Struct, tag="question", array_like=True, frozen=True):
    """A question of one sidecar to another; see `questions.py`."""

    subscription: _Name
    number: _Count
    kind: Annotated[str, Meta(max_length=64)]
    body: Annotated[bytes, Meta(max_length=BODY_BYTES_MAX)]


class PeerReply(Struct, tag="reply", array_like=True, frozen=True):
    """The answer to a `PeerQuestion`. `refusal` tells why there is none; empty if there is one."""

    subscription: _Name
    number: _Count
    body: Annotated[bytes, Meta(max_length=BODY_BYTES_MAX)]
    refusal: Annotated[str, Meta(max_length=1024)]


Frame: TypeAlias = (
    PeerAsk
    | PeerCancel
    | PeerTaken
    | PeerLost
    | PeerWatch
    | PeerAnswer
    | PeerReady
    | PeerExpired
    | PeerQuestion
    | PeerReply
)
_DECODER: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)
_ENCODER = msgspec.msgpack.Encoder()


def write_frame(frame: Frame) -> bytes:
    """Encode a frame. This copies the bodies in it."""
    return _ENCODER.encode(frame)


def read_frame(data: bytes) -> Frame:
    """Decode a frame. Raises ValueError."""
    try:
        return _DECODER.decode(data)
    except UNREADABLE as error:
        raise ValueError(f"a peer sent an invalid frame: {error}") from None


def pack_deliveries(deliveries: Sequence[Delivery]) -> list[PeerMessage]:
    """Turn deliveries into parts of a frame. This copies no body; encoding does."""
    return [_packed(each) for each in deliveries]


def _packed(each: Delivery) -> PeerMessage:
    record, origin = each.record, each.origin
    return PeerMessage(
        each.lease,
        each.topic,
        each.partition,
        record.offset,
        record.key,
        record.value,
        list(record.headers),
        record.timestamp_ms,
        each.attempt,
        each.attempts_max,
        each.first_seen_ms,
        each.deadline_ms,
        each.note,
        None
        if origin is None
        else (origin.cluster, origin.topic_id, origin.topic, origin.partition, origin.offset),
    )


def unpack_deliveries(messages: Sequence[PeerMessage]) -> list[Delivery]:
    """Turn parts of a frame into deliveries, with headers as adapters make them: pairs."""
    return [_unpacked(each) for each in messages]


def _unpacked(each: PeerMessage) -> Delivery:
    record = Record(each.offset, each.key, each.value, tuple(each.headers), each.timestamp_ms)
    return Delivery(
        each.lease,
        each.topic,
        each.partition,
        record,
        each.attempt,
        each.attempts_max,
        each.first_seen_ms,
        each.deadline_ms,
        each.note,
        None if each.origin is None else Origin(*each.origin),
    )


_MESSAGE_DECODER = msgspec.msgpack.Decoder(PeerMessage)


def write_delivery(delivery: Delivery) -> bytes:
    """Encode a delivery as the body of a `PeerReply`."""
    return _ENCODER.encode(_packed(delivery))


def read_delivery(data: bytes) -> Delivery | None:
    """Decode such a body; None if it is invalid."""
    try:
        return _unpacked(_MESSAGE_DECODER.decode(data))
    except UNREADABLE:
        return None
