"""A made-up span, and how it is written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from ackd_reports import words

Value = str | int | float


@dataclass(slots=True)
class Span:
    """A made-up span. Times in microseconds."""

    name: str
    kind: int
    start_us: int
    end_us: int
    attributes: dict[str, Value]
    failed: bool = False


def as_json(span: Span) -> str:
    """A span of OTLP JSON."""
    attributes = span.attributes
    key = "/".join(
        str(attributes.get(name, "")) for name in (words.TOPIC, words.PARTITION, *words.OFFSETS)
    )
    trace = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    identity = (
        f"{key}/{span.name}/{attributes.get(words.ATTEMPT)}/{attributes.get(words.EXTENSIONS)}"
    )
    own = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
    status = ',"status":{"code":2}' if span.failed else ""
    return (
        f'{{"traceId":"{trace}","spanId":"{own}","name":{json.dumps(span.name)},"kind":{span.kind}'
        f',"startTimeUnixNano":"{span.start_us}000","endTimeUnixNano":"{span.end_us}000"'
        f',"attributes":{attributes_json(attributes)}{status}}}'
    )


def attributes_json(values: dict[str, Value]) -> str:
    """Encode attributes as OTLP JSON."""
    return "[" + ",".join(_attribute(name, value) for name, value in values.items()) + "]"


def _attribute(name: str, value: Value) -> str:
    if isinstance(value, str):
        inside = f'"stringValue":{json.dumps(value)}'
    elif isinstance(value, int):
        inside = f'"intValue":"{value}"'
    else:
        inside = f'"doubleValue":{value}'
    return f'{{"key":"{name}","value":{{{inside}}}}}'
