"""What sidecars say to each other, as msgpack: one struct for each kind of frame.

A frame is foreign input until its fields are checked: `read_frame` accepts what is within bounds
and raises ValueError for everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from ackd.api.messages import Delivery
from ackd.core.origin import Origin
from ackd.ports import Record

NUMBERS_MAX = 10_000
"""The most numbers in one `PeerLost`."""
MESSAGES_MAX = 10_000
"""The most messages in one `PeerAnswer`."""
BODY_BYTES_MAX = 16 << 20
"""Of a question, and of its answer."""
_Count = Annotated[int, Meta(ge=0, le=(1 << 53))]
_Offset = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Partition = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_TopicId = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Name = Annotated[str, Meta(max_length=256)]


class PeerAsk(Struct, tag="ask", array_like=True, frozen=True):
    """Lease up to `max` messages; wait for the first one for `wait_ms`.

    `number`: of this request, never used twice by a process. `holder`: the caller, for `explain`.
    """

    subscription: _Name
    number: _Count
    max: Annotated[int, Meta(ge=1, le=MESSAGES_MAX)]
    bytes_max: _Count
    lease_ms: _Count
    wait_ms: _Count
    holder: Annotated[str, Meta(max_length=1024)]


class PeerCancel(Struct, tag="cancel", array_like=True, frozen=True):
    """Nobody waits for this request any more; it is answered all the same, at once."""

    subscription: _Name
    number: _Count


class PeerTaken(Struct, tag="taken", array_like=True, frozen=True):
    """The answer has reached the receive that asked: the application has these leases now."""

    subscription: _Name
    number: _Count


class PeerLost(Struct, tag="lost", array_like=True, frozen=True):
    """No answer to these requests has reached, or will reach, anybody: their leases go back."""

    subscription: _Name
    numbers: Annotated[list[_Count], Meta(max_length=NUMBERS_MAX)]


class PeerWatch(Struct, tag="watch", array_like=True, frozen=True):
    """Say when there are messages of this subscription that nobody waits for; or stop that."""

    subscription: _Name
    on: bool


class PeerMessage(Struct, array_like=True, frozen=True):
    """A `Delivery` on its way. `origin`: cluster, topic id, topic, partition, offset."""

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
    """The answer to an `PeerAsk`; without messages when its wait is over or nothing can be granted.

    `waited_ms`: the store was asked for these leases no earlier than this long after the request
    came. `ready`: messages that are left.
    """

    subscription: _Name
    number: _Count
    waited_ms: _Count
    ready: _Count
    messages: Annotated[list[PeerMessage], Meta(max_length=MESSAGES_MAX)]


class PeerReady(Struct, tag="ready", array_like=True, frozen=True):
    """Messages of this subscription lie ready here, and nobody waits for them."""

    subscription: _Name
    ready: _Count


class PeerExpired(Struct, tag="expired", array_like=True, frozen=True):
    """So many leases of the application there have expired: it counts as its failure."""

    subscription: _Name
    count: _Count


class PeerQuestion(Struct, tag="question", array_like=True, frozen=True):
    """Something that one sidecar wants to know of another; see `questions.py`."""

    subscription: _Name
    number: _Count
    kind: Annotated[str, Meta(max_length=64)]
    body: Annotated[bytes, Meta(max_length=BODY_BYTES_MAX)]


class PeerReply(Struct, tag="reply", array_like=True, frozen=True):
    """The answer to a `PeerQuestion`; `refusal`: why there is none, empty if there is."""

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
    """Encode a frame, with copies of the bodies in it."""
    return _ENCODER.encode(frame)


def read_frame(data: bytes) -> Frame:
    """Decode a frame. Raises ValueError."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"a peer sent what is no frame: {error}") from None


def pack_deliveries(deliveries: Sequence[Delivery]) -> list[PeerMessage]:
    """Make them ready to travel; bodies are not copied before they are encoded."""
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
    """Make them deliveries again; `record.headers` are pairs as an adapter makes them."""
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
    """Encode one delivery, as the body of an answer."""
    return _ENCODER.encode(_packed(delivery))


def read_delivery(data: bytes) -> Delivery | None:
    """Decode one; None if it is none."""
    try:
        return _unpacked(_MESSAGE_DECODER.decode(data))
    except msgspec.MsgspecError:
        return None
