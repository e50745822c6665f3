"""Messages and results of an outbox as bytes in the store (MessagePack: small, and keeps bytes)."""

from __future__ import annotations

import msgspec

from ackd.api.outbox import OutboxMessage
from ackd.core.ids import message_id
from ackd.core.outbox import MessageStatus
from ackd.errors import AckdError, StoreDataError
from ackd.ports import Headers, Outgoing, Stored
from ackd.unreadable import UNREADABLE


class _StoredMessage(msgspec.Struct, array_like=True):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None


class _StoredResult(msgspec.Struct, array_like=True):
    """`offset` -1: not known. `in_doubt`: the broker may have it twice. `error`: the broker refused
    it.
    """

    topic: str = ""
    partition: int = 0
    offset: int = -1
    in_doubt: bool = False
    error: str = ""


_encode = msgspec.msgpack.Encoder().encode
_entry = msgspec.msgpack.Decoder(_StoredMessage).decode
_result = msgspec.msgpack.Decoder(_StoredResult).decode


def write_message(message: Outgoing) -> bytes:
    """Encode all but the delay, which the outbox keeps itself."""
    headers, partition = message.headers, message.partition
    return _encode(_StoredMessage(message.topic, message.key, message.value, headers, partition))


def read_message(body: bytes) -> Outgoing:
    """Raises one of `UNREADABLE` for bytes that no version of ackd has
    written.
    """
    entry = _entry(body)
    return Outgoing(entry.topic, entry.key, entry.value, entry.headers, entry.partition)


def write_stored(stored: Stored, *, in_doubt: bool) -> bytes:
    """Encode the result of a message that was sent."""
    return _encode(_StoredResult(stored.topic, stored.partition, stored.offset, in_doubt))


def write_failed(error: AckdError) -> bytes:
    """Encode the result of a message that the broker refused."""
    return _encode(_StoredResult(error=f"{error.type}: {error.detail}"))


def read_status(broker: str, number: int, status: MessageStatus) -> OutboxMessage:
    """Decode the store's answer into what the API shows. Raises StoreDataError."""
    name = f"{broker}/{number}"
    if status.state not in ("sent", "failed"):
        return OutboxMessage(name, status.state, status.due_ms, status.in_doubt)
    try:
        result = _result(status.result)
    except UNREADABLE as error:
        raise StoreDataError(f"what became of {name} can't be read: {error}") from error
    if status.state == "failed":
        return OutboxMessage(name, status.state, in_doubt=status.in_doubt, error=result.error)
    known = result.offset >= 0
    sent = message_id(result.topic, result.partition, result.offset) if known else None
    return OutboxMessage(name, status.state, in_doubt=result.in_doubt, message=sent)
