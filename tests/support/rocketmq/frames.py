"""The other side of the remoting protocol: questions read, answers and messages written."""

import asyncio
import json
import struct
from collections.abc import Mapping
from typing import Any

ANSWER = 1


async def question(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The header of the next request."""
    length, header = struct.unpack(">II", await reader.readexactly(8))
    rest = await reader.readexactly(length - 4)
    found: dict[str, Any] = json.loads(rest[:header])
    return found


def answer(
    number: int,
    *,
    code: int = 0,
    remark: str = "",
    fields: Mapping[str, str] | None = None,
    body: bytes = b"",
    flag: int = ANSWER,
) -> bytes:
    """An answer as a broker writes it."""
    header = json.dumps(
        {
            "code": code,
            "opaque": number,
            "flag": flag,
            "remark": remark,
            "extFields": dict(fields or {}),
        }
    ).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def message(
    body: bytes,
    properties: Mapping[str, str],
    *,
    topic: str = "orders",
    queue: int = 0,
    offset: int = 0,
    place: int = 0,
    attempts: int = 0,
    flags: int = 0,
    v6: bool = False,
) -> bytes:
    """One message as it lies in a log; with a topic's name of 256 characters or more in the newer
    form.
    """
    long_topic = len(topic) > 255
    host = bytes(20 if v6 else 8)
    flags |= 0x30 if v6 else 0
    packed = "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()
    rest = struct.pack(
        ">IIIIQQIQ",
        0xDAA320AB if long_topic else 0xDAA320A7,
        0,
        queue,
        0,
        offset,
        place,
        flags,
        1_700_000_000_000,
    )
    rest += host + struct.pack(">Q", 1_700_000_000_001) + host + struct.pack(">IQ", attempts, 0)
    rest += struct.pack(">I", len(body)) + body
    rest += struct.pack(">H" if long_topic else ">B", len(topic)) + topic.encode()
    rest += struct.pack(">H", len(packed)) + packed
    return struct.pack(">I", 4 + len(rest)) + rest
