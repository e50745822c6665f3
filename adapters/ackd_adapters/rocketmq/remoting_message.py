"""Messages as a broker has them in its log (`MessageDecoder` of RocketMQ's Java client)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ackd.errors import BrokerError
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.zipped import unzipped

_V1: Final = 0xDAA320A7
_V2: Final = 0xDAA320AB
_COMPRESSED: Final = 1
_BORN_V6: Final = 1 << 4
_STORED_V6: Final = 1 << 5
_BATCH: Final = 1 << 7
_COMPRESSION: Final = 7 << 8
_ZLIB: Final = (0, 3 << 8)
_HEAD: Final = struct.Struct(">IIIIIQQIQ")
_HOST_BYTES, _HOST_V6_BYTES = 8, 20

ID: Final = "UNIQ_KEY"
KEYS: Final = "KEYS"
TAG: Final = "TAGS"
GROUP: Final = "__SHARDINGKEY"
SYSTEM: Final = frozenset(
    """1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG
    CORRELATION_ID DELAY DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO EXTEND_UNIQ_INFO
    INNER_MULTI_QUEUE_OFFSET INSTANCE_ID KEYS MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG
    MSG_REGION MSG_TYPE ORIGIN_GROUP ORIGIN_MESSAGE_ID PGROUP POP_CK POP_CK_OFFSET PUSH_REPLY_TIME
    REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC TAGS TIMER_DELAY_LEVEL
    TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS
    TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON TRANSFER_FLAG TRAN_MSG
    TRAN_PREPARED_QUEUE_OFFSET TTL UNIQ_KEY WAIT _SYS_MSG_PRIORITY_ __BORNHOST __CRC32#
    __LITE_TOPIC __SHARDINGKEY INNER_NUM INNER_BASE TRANS_OFFSET TRACE_CONTEXT
    __transactionId__""".split()  # noqa: SIM905
)
"""Properties that are RocketMQ's own (`MessageConst`); the others are the application's."""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """One message as it lies in the log. `place`: its place in the broker's commit log; `attempts`:
    how often a consumer has given it back.
    """

    message: Taken
    place: int
    attempts: int
    system: Mapping[str, str]


def stored_messages(body: bytes, bytes_max: int) -> list[LogMessage]:
    """The messages of an answer. Raises BrokerError when one can't be read."""
    found: list[LogMessage] = []
    at = 0
    try:
        while at < len(body):
            (size,) = struct.unpack_from(">I", body, at)
            if size < _HEAD.size or at + size > len(body):
                raise BrokerError("a message that is cut off", code="MESSAGE_CORRUPTED")
            found.append(_message(body[at : at + size], bytes_max))
            at += size
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise BrokerError(f"a message can't be read: {error}", code="MESSAGE_CORRUPTED") from None
    return found


def _message(data: bytes, bytes_max: int) -> LogMessage:
    _, magic, _, queue, _, offset, place, flags, born_ms = _HEAD.unpack_from(data)
    if magic not in (_V1, _V2) or flags & _BATCH:
        raise BrokerError("a message of an unknown form", code="MESSAGE_CORRUPTED")
    at = _HEAD.size + (_HOST_V6_BYTES if flags & _BORN_V6 else _HOST_BYTES)
    (stored_ms,) = struct.unpack_from(">Q", data, at)
    at += 8 + (_HOST_V6_BYTES if flags & _STORED_V6 else _HOST_BYTES)
    attempts, _, length = struct.unpack_from(">IQI", data, at)
    at += 16
    body = _unpacked(data[at : at + length], flags, bytes_max)
    at += length
    form = ">B" if magic == _V1 else ">H"
    (length,) = struct.unpack_from(form, data, at)
    at += struct.calcsize(form)
    topic = data[at : at + length].decode()
    at += length
    (length,) = struct.unpack_from(">H", data, at)
    properties = _properties(data[at + 2 : at + 2 + length].decode())
    message = Taken(
        properties.get(ID, ""),
        topic,
        queue,
        offset,
        "",
        attempts + 1,
        body,
        properties.get(TAG, ""),
        tuple(properties.get(KEYS, "").split()),
        properties.get(GROUP, ""),
        {name: value for name, value in properties.items() if name not in SYSTEM},
        born_ms,
        stored_ms,
    )
    return LogMessage(message, place, attempts, properties)


def _properties(text: str) -> dict[str, str]:
    pairs = (each.partition("\x01") for each in text.split("\x02") if each)
    return {name: value for name, _, value in pairs}


def _unpacked(body: bytes, flags: int, bytes_max: int) -> bytes:
    if not flags & _COMPRESSED:
        return body
    if flags & _COMPRESSION not in _ZLIB:
        raise BrokerError("a body is packed by LZ4 or Zstandard", code="UNSUPPORTED")
    return unzipped(body, bytes_max)
