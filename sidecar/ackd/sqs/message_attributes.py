"""Message attributes: what SQS clients send and get beside a body, as headers of a message.

A header holds bytes; an attribute has a data type, too. The header `sqs-types` keeps the types that
are not `String`, so that an attribute comes back as it was sent. The digests are those that clients
check: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/
sqs-message-metadata.html
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5

import orjson

from ackd.ports import Headers
from ackd.sqs.fault import Fault, wrong
from ackd.sqs.parameters import Parameters

ATTRIBUTES_MAX = 10
TYPES_HEADER = "sqs-types"
TRACE_HEADER = "AWSTraceHeader"
"""Named as the system attribute that it holds."""
DEDUPLICATION_HEADER = "sqs-deduplication-id"
ENCODING = "ackd-encoding"
"""An attribute that says how the body holds bytes that are no text (`base64`, `null`)."""
_INTERNAL = frozenset({TYPES_HEADER, TRACE_HEADER, DEDUPLICATION_HEADER})
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}").fullmatch
_TYPE = re.compile(r"(String|Number|Binary)(\.[A-Za-z0-9_.-]{1,249})?").fullmatch
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]").search
_STRING_MARK, _BINARY_MARK = b"\x01", b"\x02"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its type (`String`, `Number.int`, `Binary`) and its bytes."""

    data_type: str
    value: bytes

    @property
    def binary(self) -> bool:
        return self.data_type.startswith("Binary")

    def members(self) -> dict[str, str]:
        """The form of an answer."""
        if self.binary:
            return {"DataType": self.data_type, "BinaryValue": b64encode(self.value).decode()}
        return {"DataType": self.data_type, "StringValue": self.value.decode()}


Attributes = Mapping[str, Attribute]


def text_of(value: bytes) -> str | None:
    """The text in these bytes; None if they hold what an SQS message can't."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if _NOT_XML(text) else text


def read_attributes(parameters: Parameters) -> Attributes:
    """Read what a client sends. Raises Fault."""
    found = parameters.members("MessageAttributes")
    if len(found) > ATTRIBUTES_MAX:
        raise wrong(
            "MessageAttributes", len(found), f"A message may have {ATTRIBUTES_MAX} attributes."
        )
    for name in found:
        if not _NAME(name) or name.lower().startswith(("aws.", "amazon.")) or name in _INTERNAL:
            raise wrong("MessageAttributes", name, "An attribute can't have this name.")
    return {name: _read(name, value) for name, value in found.items()}


def read_system_attributes(parameters: Parameters) -> Attributes:
    """Read those of the protocol itself: there is one that can be sent. Raises Fault."""
    found = parameters.members("MessageSystemAttributes")
    for name in found:
        if name != TRACE_HEADER:
            raise wrong("MessageSystemAttributes", name, f"Only {TRACE_HEADER} can be sent.")
    return {name: _read(name, value) for name, value in found.items()}


def _read(name: str, value: object) -> Attribute:
    if not isinstance(value, dict):
        raise wrong(name, value, "It has to be a map.")
    given = Parameters(value)
    data_type = given.text("DataType")
    if not _TYPE(data_type):
        raise wrong(
            name, data_type, "A type is String, Number or Binary, or one of these with a label."
        )
    if data_type.startswith("Binary"):
        try:
            raw = b64decode(given.text("BinaryValue"), validate=True)
        except (Base64Error, ValueError) as error:
            raise wrong(name, "BinaryValue", "It is not base64.") from error
    else:
        text = given.text("StringValue")
        raw = text.encode("utf-8", "surrogatepass")
        if text_of(raw) is None:
            raise Fault("InvalidMessageContents", f"{name} has characters that can't be in it.")
    if not raw:
        raise wrong(name, "", "An attribute can't be empty.")
    return Attribute(data_type, raw)


def headers_of(attributes: Attributes) -> list[tuple[str, bytes]]:
    """The headers that hold these attributes."""
    headers = [(name, each.value) for name, each in attributes.items()]
    types = {
        name: each.data_type for name, each in attributes.items() if each.data_type != "String"
    }
    if types:
        headers.append((TYPES_HEADER, orjson.dumps(types)))
    return headers


def attributes_of(headers: Headers) -> dict[str, Attribute]:
    """The attributes of a message, whoever published it: of a header that is there twice the last
    one counts, and one without a value is none.
    """
    if not headers:
        return {}
    types = _types(headers)
    found: dict[str, Attribute] = {}
    for name, value in headers:
        if not value or name in _INTERNAL:
            continue
        data_type = types.get(name, "String")
        if not data_type.startswith("Binary") and text_of(value) is None:
            data_type = "Binary"
        found[name] = Attribute(data_type, value)
    return found


def _types(headers: Headers) -> dict[str, str]:
    """What `sqs-types` says; anybody may have written it, so only what can be is believed."""
    raw = header(headers, TYPES_HEADER)
    if raw is None:
        return {}
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: kind for name, kind in found.items() if isinstance(kind, str) and _TYPE(kind)}


def header(headers: Headers, name: str) -> bytes | None:
    """The last value of a header."""
    return next((value for each, value in reversed(headers) if each == name), None)


def selected(attributes: Attributes, wanted: Sequence[str]) -> Attributes:
    """Those that a receive asks for: by name, `All`, or a beginning as `shop.*`."""
    if not wanted or not attributes:
        return {}
    if "All" in wanted or ".*" in wanted:
        return attributes
    names = {each for each in wanted if not each.endswith(".*")}
    starts = tuple(each[:-1] for each in wanted if each.endswith(".*"))
    return {
        name: each
        for name, each in attributes.items()
        if name in names or (starts and name.startswith(starts))
    }


def digest(data: bytes) -> str:
    """MD5, as the protocol wants it; it protects nothing."""
    return md5(data, usedforsecurity=False).hexdigest()


def attributes_digest(attributes: Attributes) -> str:
    """The digest over all attributes, by their names: each with name, type and value, and the
    length of each in four bytes.
    """
    parts: list[bytes] = []
    for name in sorted(attributes):
        each = attributes[name]
        parts += _sized((name.encode(), each.data_type.encode()))
        parts.append(_BINARY_MARK if each.binary else _STRING_MARK)
        parts += _sized((each.value,))
    return digest(b"".join(parts))


def _sized(pieces: Iterable[bytes]) -> Iterable[bytes]:
    for piece in pieces:
        yield len(piece).to_bytes(4, "big")
        yield piece
