"""CloudEvents of producers and publishers: faults are listed, what is taken goes out as it came."""

import json
from base64 import b64decode
from collections.abc import Iterator

from ackd.api.messages import Delivery
from ackd.http.formats import cloudevents
from ackd.http.formats.cloudevents import Faults
from ackd.http.formats.negotiation import CE_JSON
from ackd.ports import Record

_LEASE = {"ackdlease", "ackdid", "ackdattempt", "ackdattemptsmax", "ackddeadline", "partitionkey"}
_MADE_UP = "ackd.message"


def run(data: bytes) -> None:
    """The first byte says in which form it comes."""
    form, raw = (data[:1] or b"\0")[0] % 3, data[1:]
    if form == 0:
        _published(raw)
    elif form == 1:
        _delivered(CE_JSON.encode(), raw, ())
    else:
        head, _, value = raw.partition(b"\n\n")
        pairs = [line.partition(b":")[::2] for line in head.split(b"\n")]
        faults: Faults = []
        found = cloudevents.binary_in(pairs, faults)
        assert found or not faults or b"ce-" in head.lower()
        headers = tuple((name.decode("utf-8", "replace"), part) for name, part in pairs)
        _delivered(b"", value, headers)


def _published(raw: bytes) -> None:
    faults: Faults = []
    key = cloudevents.structured_in(raw, "", faults)
    for place, why in faults:
        assert place.startswith("/") or not place
        assert why
    if not faults:
        members = json.loads(raw)
        assert members["specversion"] == "1.0"
        assert (key is None) == (members.get("partitionkey") is None)
        _delivered(CE_JSON.encode(), raw, ())


def _delivered(kind: bytes, value: bytes, headers: tuple[tuple[str, bytes | None], ...]) -> None:
    """What goes out is JSON, is an event, and has the data that came."""
    if kind:
        headers = (*headers, ("content-type", kind))
    record = Record(2101, None, value, headers, 1_795_270_000_000)
    delivery = Delivery("v1.a", "orders", 3, record, 1, 5, 1_795_270_000_000, 1_795_270_030_000)
    for payload in ("json", "text", "binary"):
        event = cloudevents.event_of(delivery, payload)
        event.binary()
        told = json.loads(event.structured())
        assert all(told.get(name) for name in ("id", "source", "type", "specversion"))
        assert told["ackdlease"] == "v1.a"
        if told["type"] == _MADE_UP and told["ackdid"] == told["id"] and "data_base64" in told:
            assert b64decode(told["data_base64"]) == value
        # What went out as an event comes in as the same one.
        second = Record(1, None, event.structured(), (("content-type", CE_JSON.encode()),), 0)
        again = cloudevents.event_of(
            Delivery("v1.a", "orders", 3, second, 1, 5, 0, 1_795_270_030_000), payload
        )
        same = {name: part for name, part in event.attributes.items() if name not in _LEASE}
        assert {n: part for n, part in again.attributes.items() if n not in _LEASE} == same
        if again.form == event.form:
            assert _bare(again.data) == _bare(event.data)


def _bare(data: bytes | None) -> bytes:
    """Without the spaces that may stand around JSON."""
    return (data or b"").strip(b" \t\r\n")


def seeds() -> Iterator[bytes]:
    """Structured, as a producer wrote it, and binary."""
    event = (
        b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time":'
        b' "2026-11-27T00:00:00Z", "datacontenttype": "application/json", "partitionkey": "k",'
        b' "n": 5, "yes": true, "data": {"a": 1.50}}'
    )
    yield b"\0" + event
    yield b"\1" + event
    yield b"\1" + event.replace(b'"data": {"a": 1.50}', b'"data_base64": "aGk="')
    yield b"\0" + event.replace(b"application/json", b"text/plain").replace(b'{"a": 1.50}', b'"x"')
    head = b'ce-specversion: 1.0\nce-id:1\nce-source:/s\nce-type:"t%20u"\nce-a:b\n'
    yield b"\2" + head + b"content-type:application/json\n\n{}"
    yield b"\2" + head.replace(b"ce-", b"ce_") + b"content-type:text/plain\n\nhello"
    yield b"\2traceparent: 00-a-b-01\n\n\xff\xfe"
