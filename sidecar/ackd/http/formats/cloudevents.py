"""CloudEvents 1.0.2: its HTTP binding (binary, structured, batch) and its JSON format, both ways.

The broker stores an event as the Kafka binding says, so that other readers of the topic know it:
binary mode as `ce_<attribute>` headers beside the value, structured mode as the JSON itself with
the content type `application/cloudevents+json`. A message that is no event goes out as one of type
`ackd.message`, whose id is the message's.

Own code and not the CNCF's library, because messages go through here: the library parses data into
objects, so numbers change their digits, and one event of 1 KiB from the broker to JSON takes it
63 us of CPU where this takes 14 (`tests/bench/bench_codec.py`). The tests hold this against it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, unquote

import msgspec
import orjson

from ackd.api.messages import Delivery
from ackd.http.formats.delivery_json import content_type_of, is_json, safe
from ackd.http.formats.negotiation import CE_JSON, OCTETS, media_type
from ackd.http.formats.raw import HeaderPairs
from ackd.ports import Headers
from ackd.unreadable import UNREADABLE

VERSION = "1.0"
STRUCTURED_TYPE = f"{CE_JSON}; charset=UTF-8"
_PREFIXES = ("ce_", "ce-")
_JSON_TYPE = re.compile(r"[^/]+/(?:[^/+]+\+)?json", re.IGNORECASE)
# HTTP binding, section 3.1.3.2: all of printable ASCII but the space, the quote and the percent.
_SAFE = "".join(chr(each) for each in range(0x21, 0x7F) if chr(each) not in ' "%')
_NAME = re.compile(r"[a-z0-9]{1,100}")
_TIME = re.compile(
    r"\d{4}-[01]\d-[0-3]\d[Tt][0-2]\d:[0-5]\d:[0-6]\d(\.\d+)?([Zz]|[+-][0-2]\d:[0-5]\d)"
)
_REQUIRED = ("specversion", "id", "source", "type")
_INT32 = 2**31

Scalar = str | int | bool
Faults = list[tuple[str, str]]


@dataclass(slots=True)
class EventForm:
    """A delivery as an event. `data`: bytes of its value; `form`: how JSON holds them (json, text,
    binary).
    """

    attributes: dict[str, Scalar]
    data: bytes | None
    form: str

    def structured(self) -> bytes:
        """Encode the event in the JSON format. JSON data goes out as the very bytes that the
        producer wrote.
        """
        head = orjson.dumps(self.attributes)[:-1]
        if self.data is None:
            return head + b"}"
        if self.form == "json":
            return b'%b,"data":%b}' % (head, self.data)
        if self.form == "text":
            return b'%b,"data":%b}' % (head, orjson.dumps(self.data.decode()))
        return b'%b,"data_base64":"%b"}' % (head, b64encode(self.data))

    def binary(self) -> tuple[str, HeaderPairs]:
        """Return (content type, headers) of binary mode; the body is `data`."""
        pairs = [
            (f"ce-{name}", quote(_text(value), safe=_SAFE))
            for name, value in self.attributes.items()
            if name != "datacontenttype"
        ]
        kind = str(self.attributes.get("datacontenttype", ""))
        if not kind and self.form == "json" and self.data is not None:
            kind = "application/json"
        return kind if kind.isascii() and kind.isprintable() else "", pairs


def _text(value: Scalar) -> str:
    """Write a value as its canonical string (section 3.1 of the specification)."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- out ------------------------------------------------------------------------------------------


def event_of(delivery: Delivery, payload: str) -> EventForm:
    """Make an event of a delivery. `payload`: the subscription's setting, for data that has no
    content type.

    The lease is in extension attributes, which replace any of the same name.
    """
    record = delivery.record
    kind = content_type_of(record.headers)
    event = None
    if kind is not None and record.value is not None and media_type(kind) == CE_JSON:
        event = _from_structured(record.value)
    if event is None:
        attributes = _attributes(record.headers)
        # Many clients send octet-stream when nobody chose a type; then the setting knows better.
        unsaid = not attributes and kind is not None and media_type(kind) == OCTETS
        attributes = attributes or _made_up(delivery)
        if kind is not None and not unsaid:
            attributes["datacontenttype"] = safe(kind)
        event = EventForm(attributes, record.value, "json")
        _choose_form(event, payload)
    own = event.attributes
    if record.key is not None and "partitionkey" not in own:
        with suppress(UnicodeDecodeError):  # bytes have no place in an attribute
            own["partitionkey"] = record.key.decode()
    own["ackdlease"] = delivery.lease
    own["ackdid"] = safe(delivery.id)
    own["ackdattempt"] = delivery.attempt
    own["ackdattemptsmax"] = delivery.attempts_max
    if delivery.note is not None:
        own["ackdnote"] = safe(delivery.note)
    own["ackddeadline"] = timestamp(delivery.deadline_ms)
    return event


def timestamp(ms: int) -> str:
    """Write a time as RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _attributes(headers: Headers) -> dict[str, Scalar]:
    """Read the attributes of an event stored in binary mode; empty if the message is no event."""
    found: dict[str, Scalar] = {}
    for name, value in headers:
        lower = name.lower()
        if lower.startswith(_PREFIXES) and value is not None and _NAME.fullmatch(lower[3:]):
            found.setdefault(lower[3:], value.decode("utf-8", "replace"))
    return found if all(found.get(name) for name in _REQUIRED) else {}


def _made_up(delivery: Delivery) -> dict[str, Scalar]:
    attributes: dict[str, Scalar] = {
        "specversion": VERSION,
        "id": safe(delivery.id),
        "source": f"/v1/topics/{quote(safe(delivery.topic), safe='')}",
        "type": "ackd.message",
    }
    if delivery.record.timestamp_ms > 0:
        attributes["time"] = timestamp(delivery.record.timestamp_ms)
    for name, value in delivery.record.headers:
        if name in {"traceparent", "tracestate"} and value is not None:
            attributes[name] = value.decode("utf-8", "replace")
    return attributes


def _choose_form(event: EventForm, payload: str) -> None:
    """Choose how JSON holds the value: by its content type, else by the subscription's setting; a
    value that does not fit is binary.
    """
    kind = media_type(str(event.attributes.get("datacontenttype", "")))
    form = payload
    if kind:
        form = "json" if is_json_type(kind) else "text" if kind.startswith("text/") else "binary"
    data = event.data
    if data is None:
        return
    if form == "json" and is_json(data):
        event.form = "json"
    elif form == "text" and is_text(data):
        event.form = "text"
        event.attributes.setdefault("datacontenttype", "text/plain")
    else:
        event.form = "binary"
        event.attributes.setdefault("datacontenttype", "application/octet-stream")


def is_json_type(kind: str) -> bool:
    """Whether a content type is JSON: `application/json`, `text/json`, `application/geo+json`."""
    return _JSON_TYPE.fullmatch(kind) is not None


def is_text(raw: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _from_structured(raw: bytes) -> EventForm | None:
    """Read an event that a producer stored as structured JSON; None if the value is none."""
    if not is_json(raw):
        return None
    try:
        members = _MEMBERS.decode(raw)
    except UNREADABLE:
        return None
    event = _event(members)
    return event if all(event.attributes.get(name) for name in _REQUIRED) else None


def _event(members: dict[str, msgspec.Raw]) -> EventForm:
    """Make an event of its JSON members; skip members that can't be attributes."""
    attributes: dict[str, Scalar] = {}
    for name, raw in members.items():
        if name in {"data", "data_base64"} or not _NAME.fullmatch(name):
            continue
        value = msgspec.json.decode(raw)
        if isinstance(value, str | bool) or (isinstance(value, int) and abs(value) <= _INT32):
            attributes[name] = value
    encoded = members.get("data_base64")
    if encoded is not None:
        try:
            return EventForm(
                attributes, b64decode(msgspec.json.decode(encoded, type=str)), "binary"
            )
        except (ValueError, msgspec.MsgspecError):
            return EventForm(attributes, None, "binary")
    data = members.get("data")
    if data is None:
        return EventForm(attributes, None, "json")
    raw_data = bytes(data)
    kind = media_type(str(attributes.get("datacontenttype", "")))
    if kind and not is_json_type(kind) and raw_data[:1] == b'"':
        return EventForm(attributes, msgspec.json.decode(raw_data, type=str).encode(), "text")
    return EventForm(attributes, raw_data, "json")


# --- in -------------------------------------------------------------------------------------------


def binary_in(headers: Iterable[tuple[bytes, bytes]], faults: Faults) -> dict[str, str]:
    """Read the attributes of a request in binary mode; empty if it has no `ce-specversion`."""
    found: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.lower().decode("ascii", "replace")
        if not name.startswith("ce-"):
            continue
        if name[3:] in found:
            faults.append((f"header:{name}", "This header may be sent once only."))
        found[name[3:]] = _header_value(raw_value)
    if "specversion" not in found:
        return {}
    faults += [(f"header:ce-{name or '?'}", why) for name, why in check(found)]
    return found


def _header_value(raw: bytes) -> str:
    """Remove quotes and percent-encoding (HTTP binding, section 3.1.3.2)."""
    text = raw.decode("utf-8", "replace")
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    return unquote(text)


def check(attributes: dict[str, str] | dict[str, Scalar]) -> Faults:
    """Return (attribute, what is wrong) for each mistake, by the specification's section 3."""
    faults: Faults = []
    for name in _REQUIRED:
        if attributes.get(name, "") == "":
            faults.append((name, "This attribute is required."))
        elif not isinstance(attributes[name], str):
            faults.append((name, "Expected text."))
    version = attributes.get("specversion")
    if version and version != VERSION:
        faults.append(("specversion", f"Only {VERSION} is known here."))
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            faults.append((name, "An attribute's name has lower-case letters and digits only."))
        elif name in {"time", "subject", "datacontenttype", "dataschema"} and value == "":
            faults.append((name, "Expected text that is not empty."))
    time = attributes.get("time")
    if time and not (isinstance(time, str) and _TIME.fullmatch(time)):
        faults.append(("time", "Expected an RFC 3339 date-time."))
    return faults


def structured_in(raw: bytes, at: str, faults: Faults) -> str | None:
    """Check one event in JSON; its `partitionkey`, if any. Faults get the pointer `at` in front."""
    try:
        members = _MEMBERS.decode(raw)
        if not is_json(raw):
            raise msgspec.DecodeError("not UTF-8")
    except UNREADABLE as error:
        faults.append((at, f"Not an event in JSON: {error}."))
        return None
    event = _event(members)
    found = check(event.attributes)
    known = {*event.attributes, "data", "data_base64", *(name for name, _ in found)}
    for name, value in members.items():
        if name not in known and bytes(value) != b"null":
            found.append((name, "Not an attribute: text, a truth value or a 32-bit number."))
    if "data_base64" in members and bytes(members["data_base64"]) != b"null":
        if bytes(members.get("data", b"null")) != b"null":
            found.append(("data_base64", "Only one of data and data_base64."))
        elif not _is_base64(members["data_base64"]):
            found.append(("data_base64", "Not base64."))
    faults += [(f"{at}/{safe(name)}", why) for name, why in found]
    key = event.attributes.get("partitionkey")
    return None if key is None else _text(key)


def _is_base64(raw: msgspec.Raw) -> bool:
    try:
        b64decode(msgspec.json.decode(raw, type=str), validate=True)
    except (ValueError, msgspec.MsgspecError):
        return False
    return True


def batch_of(events: Sequence[EventForm]) -> bytes:
    """Encode events in the JSON batch format of CloudEvents."""
    return b"[%b]" % b",".join([event.structured() for event in events])
