"""ackd's messages in RocketMQ's terms, and back.

A key of a FIFO topic is the message group, else it is one of the message's keys. Headers are user
properties. What a property can't hold (bytes that are no text, a name twice, no value) travels in
one property of our own, and so do a body that is absent and a key that is no text.
"""

from __future__ import annotations

import base64
import json
from typing import Final

from ackd.ports import Headers, Outgoing, Record
from ackd_adapters.rocketmq.message import MessageToSend, Taken

PACKED: Final = "ackd-packed"
TAG: Final = "rocketmq-tag"
_FORBIDDEN: Final = frozenset("\x00\x01\x02\x03")
_EMPTY: Final = b"\0"
"""The broker refuses a message without a body."""


def outgoing(message: Outgoing, *, fifo: bool, due_ms: int) -> MessageToSend:
    """A message to send. Raises ValueError with a sentence when it can't be sent."""
    tag = ""
    properties: dict[str, str] = {}
    packed: dict[str, list[list[str | None]]] = {}
    for name, value in message.headers:
        text = _text(value)
        if name == TAG and text:
            tag = text
        elif text is None or name in properties or not _is_name(name):
            packed["headers"] = [[one, _pack(two)] for one, two in message.headers]
            properties.clear()
            break
        else:
            properties[name] = text
    key = _text(message.key)
    if message.key is not None and (not key or " " in key):
        packed["key"] = [["", _pack(message.key)]]
        key = message.key.hex() or "-"
    if not message.value:
        packed["empty"] = [["", None if message.value is None else ""]]
    if packed:
        properties[PACKED] = json.dumps(packed, separators=(",", ":"))
    if fifo and not key:
        raise ValueError("a FIFO topic needs a key, which is the message group")
    return MessageToSend(
        message.topic,
        message.value or _EMPTY,
        tag,
        () if fifo or not key else (key,),
        key if fifo and key else "",
        due_ms,
        properties,
    )


def record(taken: Taken) -> Record:
    """The message as the engine's record."""
    properties = dict(taken.properties)
    packed = _unpack(properties.pop(PACKED, ""))
    headers: Headers = tuple((name, value.encode()) for name, value in properties.items())
    if "headers" in packed:
        headers = tuple(packed["headers"])
    if taken.tag and all(name != TAG for name, _ in headers):
        headers = (*headers, (TAG, taken.tag.encode()))
    text = taken.group or (taken.keys[0] if taken.keys else None)
    key = None if text is None else text.encode()
    if "key" in packed:
        key = packed["key"][0][1]
    value: bytes | None = taken.body
    if "empty" in packed:
        value = packed["empty"][0][1]
    return Record(taken.offset, key, value, headers, taken.stored_ms or taken.born_ms)


def _text(value: bytes | None) -> str | None:
    """Bytes as a property's value; None when they can't be one."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text and not _FORBIDDEN.intersection(text) else None


def _is_name(name: str) -> bool:
    """Whether it can be a header's name: the broker's own are in capitals."""
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return plain.isalnum() and plain.isascii() and not name.isupper() and name != PACKED


def _pack(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _unpack(text: str) -> dict[str, list[tuple[str, bytes | None]]]:
    """The contents of our own property; nothing when another client has written it."""
    try:
        found = json.loads(text) if text else {}
        return {
            what: [
                (str(name), None if value is None else base64.b64decode(value))
                for name, value in pairs
            ]
            for what, pairs in found.items()
            if pairs
        }
    except (ValueError, AttributeError, TypeError):
        return {}
