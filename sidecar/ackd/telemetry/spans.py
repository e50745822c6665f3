"""Finished spans of messages as OTLP JSON, made by string formatting (docs/operate/traces.md).

A span of the SDK costs a hundred microseconds until it leaves, one of these three or four. A
template holds what never changes for a partition. The form is OTLP/JSON: ids in hexadecimal, 64-bit
numbers as strings, enums as numbers (the protobuf JSON mapping except for the ids); a test reads
each kind with the official messages.

Ids are derived, not random: the trace id from the message's coordinate and reset epoch, the span id
from that, its event, the lease's fencing number and an ordinal. Whichever sidecar reports the same
event again writes the same ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

MASK_64 = (1 << 64) - 1
MASK_128 = (1 << 128) - 1
MASK_56 = (1 << 56) - 1
BEFORE_IDS = 1 << 128
"""A bit before the ids keeps the zeros in front; a format for these costs four times as much."""
STEP_128 = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""2^128 / golden ratio, odd: neighbouring offsets are far apart, and spread evenly."""
STEP_OFFSET = 0x9E3779B97F4A7C15
STEP_FENCE = 0xC2B2AE3D27D4EB4F
STEP_ORDINAL = 0x165667B19E3779F9
INTERNAL, CLIENT, PRODUCER, CONSUMER = 1, 3, 4, 5
"""Kinds of spans in OTLP (enum SpanKind)."""
_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
"""The header `traceparent` (W3C Trace Context, 3.2)."""
_PARENT_BYTES = 55
_HEX = b"0123456789abcdef"
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16


class SpanEvent(IntEnum):
    """What a span reports (`ackd.event` is its name in lower case). Counters are indexed by
    these.
    """

    ACK = 0
    RETRY = 1
    RELEASE = 2
    EXPIRE = 3
    DEAD = 4
    SEND_BACK = 5
    DEAD_LETTER = 6
    EXTEND = 7
    LATE = 8
    REDRIVE = 9
    RECEIVE = 10
    SETTLE = 11
    COMMIT = 12
    PUBLISH = 13
    OWN = 14
    """Of the sidecar itself: start, stop, status, outage, takeover, seek, config (`own.py`)."""


class _Shape(NamedTuple):
    """The form of an event's spans: name before the topic, kind, type of the operation, error."""

    name: str
    kind: int
    type: str
    error: str = ""


_SHAPES: Mapping[SpanEvent, _Shape] = {
    SpanEvent.ACK: _Shape("process", CONSUMER, "process"),
    SpanEvent.RETRY: _Shape("retry", CONSUMER, "settle"),
    SpanEvent.RELEASE: _Shape("release", CONSUMER, "settle"),
    SpanEvent.EXPIRE: _Shape("expire", CONSUMER, "settle", "lease_expired"),
    SpanEvent.DEAD: _Shape("dead", CONSUMER, "settle", "dead"),
    SpanEvent.SEND_BACK: _Shape("send_back", CLIENT, "send"),
    SpanEvent.DEAD_LETTER: _Shape("dead_letter", CLIENT, "send"),
    SpanEvent.EXTEND: _Shape("extend", CLIENT, "settle"),
    SpanEvent.LATE: _Shape("late", CLIENT, "settle", "lease_lost"),
    SpanEvent.REDRIVE: _Shape("redrive", PRODUCER, "send"),
}


class SpanPlace(NamedTuple):
    """A partition as a group sees it. `topic_id` as in the ledger's key."""

    system: str
    cluster: str
    subscription: str
    group: str
    topic: str
    topic_id: bytes
    partition: int


def text(key: str, value: str) -> str:
    """Encode an attribute with a string value as OTLP JSON."""
    return f'{{"key":"{key}","value":{{"stringValue":{json.dumps(value)}}}}}'


def number(key: str, value: int) -> str:
    """Encode an attribute with an integer value as OTLP JSON."""
    return f'{{"key":"{key}","value":{{"intValue":"{value}"}}}}'


def truth(key: str) -> str:
    """Encode a boolean attribute that is true."""
    return f'{{"key":"{key}","value":{{"boolValue":true}}}}'


def link(parent: bytes | None) -> str:
    """Encode the producer's trace context (`traceparent`) as links; empty if it is not valid."""
    if parent is None:
        return ""
    if len(parent) == _PARENT_BYTES and parent.translate(None, _HEX) == b"---":
        context = parent.decode()
        if not context[2] == context[35] == context[52] == "-":
            return ""
    else:
        context = parent.decode("ascii", "replace")
        if _PARENT.fullmatch(context) is None:  # it may be of a later version
            return ""
    trace, span = context[3:35], context[36:52]
    if trace == _NO_TRACE or span == _NO_SPAN:
        return ""
    return f',"links":[{{"traceId":"{trace}","spanId":"{span}"}}]'


def digest(*parts: str, size: int) -> int:
    """Derive a number of `size` bytes from these texts in this order."""
    state = blake2b(digest_size=size)
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(4, "big") + data)
    return int.from_bytes(state.digest(), "big")


class MessageSpans:
    """Spans of the messages of one partition in one reset epoch.

    Times: `start_us` and `fence` in microseconds, the others in milliseconds, all by the store's
    clock. A fencing number is that clock's time of the grant, so a lease's token tells when the
    lease began. `common`: attributes of all spans. `more`: further ones, each with a comma before
    it. `acks`: template and first ids (`acked.texts`).
    """

    __slots__ = (
        "_application",
        "_span_bases",
        "_templates",
        "acks",
        "common",
        "epoch",
        "place",
        "trace_base",
    )

    def __init__(self, place: SpanPlace, epoch: int, application: str) -> None:
        self.place, self.epoch = place, epoch
        key = (
            place.cluster,
            place.subscription,
            place.topic_id.hex(),
            str(place.partition),
            str(epoch),
        )
        self.trace_base = digest("trace", *key, size=16)
        self._span_bases = [digest("span", event.name, *key, size=8) for event in SpanEvent]
        self._application = application
        self.common = ",".join(
            text(key, value) if isinstance(value, str) else number(key, value)
            for key, value in self.attributes.items()
        )
        self._templates = [
            self._template(event, _SHAPES[event]) if event in _SHAPES else () for event in SpanEvent
        ]
        self.acks = (
            self._templates[SpanEvent.ACK],
            self.trace_base,
            self._span_bases[SpanEvent.ACK],
        )

    @property
    def attributes(self) -> dict[str, str | int]:
        """The attributes of `common`, before they become text."""
        place = self.place
        found: dict[str, str | int] = {
            "messaging.system": place.system,
            "messaging.destination.name": place.topic,
            "messaging.destination.partition.id": str(place.partition),
            "messaging.consumer.group.name": place.group,
            "ackd.cluster": place.cluster,
            "ackd.subscription": place.subscription,
            "ackd.topic.id": place.topic_id.hex(),
            "ackd.reset.epoch": self.epoch,
        }
        if self._application:
            found["ackd.application"] = self._application
        return found

    def _template(self, event: SpanEvent, shape: _Shape) -> tuple[str, ...]:
        """The template: what is between trace, span, start (us), end (ms), offset twice, attempt,
        fence, more and links.
        """
        place = self.place
        fixed = [
            text("ackd.event", event.name.lower()),
            text("messaging.operation.name", event.name.lower()),
            text("messaging.operation.type", shape.type),
            self.common,
        ]
        status = ""
        if shape.error:
            fixed.append(text("error.type", shape.error))
            status = ',"status":{"code":2}'
        own = "messaging.kafka.offset" if place.system == "kafka" else "ackd.offset"
        name = json.dumps(f"{shape.name} {place.topic}")
        identity = json.dumps(f"{place.topic}/{place.partition}/")[:-1]
        return (
            '{"traceId":"',
            '","spanId":"',
            f'","name":{name},"kind":{shape.kind},"startTimeUnixNano":"',
            '000","endTimeUnixNano":"',
            f'000000","attributes":[{",".join(fixed)},{{"key":"{own}","value":{{"intValue":"',
            f'"}}}},{{"key":"messaging.message.id","value":{{"stringValue":{identity}',
            '"}},{"key":"ackd.delivery.attempt","value":{"intValue":"',
            '"}},{"key":"ackd.lease.fence","value":{"intValue":"',
            '"}}',
            "]",
            f"{status}}}",
        )

    def trace(self, offset: int) -> int:
        """Return the id of the trace that all spans of a message are in."""
        return (self.trace_base + offset * STEP_128) & MASK_128

    def span(
        self,
        event: SpanEvent,
        offset: int,
        attempt: int,
        fence: int,
        start_us: int,
        end_ms: int,
        more: str = "",
        links: str = "",
        ordinal: int = 0,
    ) -> str:
        # `[event]` would ask the enumeration for its number.
        number = event._value_
        a, b, c, d, e, f, g, h, i, j, k = self._templates[number]
        span = self._span_bases[number] + offset * STEP_OFFSET + fence * STEP_FENCE
        if ordinal:
            span += ordinal * STEP_ORDINAL
        trace = (self.trace_base + offset * STEP_128) & MASK_128
        ids = hex((BEFORE_IDS | trace) << 64 | span & MASK_64)
        place, granted = str(offset), str(fence)
        start = granted if start_us == fence else start_us
        if start_us > end_ms * 1000:
            start = end_ms * 1000
        return (
            f"{a}{ids[3:35]}{b}{ids[35:]}{c}{start}{d}{end_ms}{e}{place}{f}{place}"
            f"{g}{attempt}{h}{granted}{i}{more}{j}{links}{k}"
        )

    def batch(
        self,
        event: SpanEvent,
        start_us: int,
        end_us: int,
        more: str,
        ordinal: int,
        kind: int = CLIENT,
    ) -> str:
        """A span about many messages of the partition, in a trace of its own."""
        name = event.name.lower()
        fixed = (text("ackd.event", name), text("messaging.operation.name", name))
        trace = digest(f"{self.trace_base:x}", name, str(start_us), str(ordinal), size=16)
        return whole(
            trace,
            f"{name} {self.place.topic}",
            kind,
            (start_us, max(start_us, end_us)),
            f"{','.join(fixed)},{self.common}{more}",
        )


def whole(
    trace: int, name: str, kind: int, times_us: tuple[int, int], attributes: str, status: str = ""
) -> str:
    """A span that is alone in its trace. `status`: `,"status":{...}` or nothing."""
    return (
        f'{{"traceId":"{trace & MASK_128:032x}","spanId":"{(trace >> 64) & MASK_64 or 1:016x}",'
        f'"name":{json.dumps(name)},"kind":{kind},"startTimeUnixNano":"{times_us[0]}000",'
        f'"endTimeUnixNano":"{times_us[1]}000","attributes":[{attributes}]{status}}}'
    )


def ranges(offsets: list[int]) -> str:
    """Write offsets as `100-131,140`; sorts them in place."""
    offsets.sort()
    parts: list[str] = []
    start = last = -2
    for offset in [*offsets, -1]:
        if offset == last + 1 or offset == last:
            last = offset
            continue
        if start >= 0:
            parts.append(f"{start}-{last}" if last > start else f"{start}")
        start = last = offset
    return ",".join(parts)
