"""Deliveries and results as JSON bytes, joined from pieces that are encoded once.

A value that is valid JSON goes out as the very bytes that the producer wrote: nothing is parsed
into objects, and numbers keep their digits. Figures are in `tests/bench/bench_codec.py`.

The `payload` setting of the subscription decides the field of the value, never a guess by message:
`json` and `text` fall back to `base64` when the bytes are not that; an absent value (tombstone) is
null and marked, because `null` is also a JSON value.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence

import msgspec
import orjson

from ackd.api.control import Cancel
from ackd.api.messages import ACKED, Delivery, Received, SettleResult, Status
from ackd.http.formats.problems import problem
from ackd.ports import Headers
from ackd.unreadable import UNREADABLE

_TOPICS_MAX = 1024
_CONTENT_TYPE = len("content-type")
_SKIP = msgspec.json.Decoder(msgspec.Raw).decode
_TOMBSTONE = b'"tombstone":true,'

Value = Callable[[bytes | None], bytes]


def is_json(raw: bytes) -> bool:
    """Whether the bytes are one JSON value in UTF-8 (RFC 8259), which can be a part of another."""
    try:
        _SKIP(raw)
        if not raw.isascii():
            raw.decode()
    except UNREADABLE:
        return False
    return True


def _binary(raw: bytes | None) -> bytes:
    if raw is None:
        return _TOMBSTONE + b'"base64":null}'
    return b'"base64":"%b"}' % b64encode(raw)


def _json(raw: bytes | None) -> bytes:
    if raw is None:
        return _TOMBSTONE + b'"json":null}'
    return b'"json":%b}' % raw if is_json(raw) else _binary(raw)


def _text(raw: bytes | None) -> bytes:
    if raw is None:
        return _TOMBSTONE + b'"text":null}'
    try:
        return b'"text":%b}' % orjson.dumps(raw.decode())
    except UnicodeDecodeError:
        return _binary(raw)


_VALUES: dict[str, Value] = {"json": _json, "text": _text, "binary": _binary}


def text_or_base64(raw: bytes | None) -> str | dict[str, str] | None:
    """A key or header value: text when it is UTF-8, else `{"base64": ...}`; absent stays null."""
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(raw).decode()}


def safe(text: str) -> str:
    """Make a header name from broken bytes fit for UTF-8."""
    return text.encode("utf-8", "replace").decode()


def header_list(headers: Headers) -> bytes:
    """Encode headers as `[["name","value"],...]`; order and repeats stay."""
    try:
        return orjson.dumps([(name, value.decode()) for name, value in headers])  # type: ignore[union-attr]
    except (AttributeError, UnicodeDecodeError, TypeError):
        # An absent value, bytes that are not text, or a broken name.
        pairs = [(safe(name), text_or_base64(value)) for name, value in headers]
        return orjson.dumps(pairs)


def content_type_of(headers: Headers) -> str | None:
    """Return the message's own content type, from its header of that name in any case; None if it
    is not text.
    """
    for name, value in headers:
        # The length first: most headers are told apart by it.
        if len(name) == _CONTENT_TYPE and name.lower() == "content-type" and value is not None:
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
    return None


class DeliveryEncoder:
    """Encodes one subscription's deliveries; `payload` is its setting: json, text or binary.

    `value` makes the last member of an object, and its end.
    """

    def __init__(self, payload: str) -> None:
        self.payload = payload
        self.value = _VALUES[payload]
        self._topics: dict[str, bytes] = {}

    def _topic(self, topic: str) -> bytes:
        """Encode the topic as the inside of a JSON string. A regular expression may match many
        topics, so the cache is bounded.
        """
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        known = self._topics[topic] = orjson.dumps(topic)[1:-1]
        return known

    def one(self, delivery: Delivery) -> bytes:
        """Encode one message as a JSON object. A lease is base64url and never needs escaping."""
        record = delivery.record
        topic = self._topics.get(delivery.topic) or self._topic(delivery.topic)
        key = record.key
        headers = record.headers
        if headers:
            listed = header_list(headers)
            kind = content_type_of(headers)
            if kind is not None:
                listed += b',"content_type":' + orjson.dumps(kind)
        else:
            listed = b"[]"
        if delivery.note is not None:
            listed += b',"note":' + orjson.dumps(delivery.note)
        return (
            b'{"id":"%b/%d/%d","lease":"%b","topic":"%b","key":%b,"attempt":%d,"attempts_max":%d,'
            b'"first_seen_ms":%d,"deadline_ms":%d,"published_ms":%d,"headers":%b,%b'
        ) % (
            topic,
            delivery.partition,
            record.offset,
            delivery.lease.encode(),
            topic,
            b"null" if key is None else orjson.dumps(text_or_base64(key)),
            delivery.attempt,
            delivery.attempts_max,
            delivery.first_seen_ms,
            delivery.deadline_ms,
            record.timestamp_ms,
            listed,
            self.value(record.value),
        )

    def received(self, received: Received, settled: bytes | None = None) -> bytes:
        """Encode the answer to a receive; `settled`: the encoded results of a joined call."""
        one = self.one
        pieces = [b'{"messages":[', b",".join([one(each) for each in received.messages]), b"]"]
        if settled is not None:
            pieces += (b',"settled":', settled)
        if received.replayed:
            pieces.append(b',"replayed":true')
        if received.limited_by is not None:
            pieces += (b',"limited_by":', orjson.dumps(received.limited_by))
        if received.paused is not None:
            pieces += (b',"paused":', orjson.dumps(dict(received.paused), default=str))
        if received.wait_ms_max is not None:
            pieces.append(b',"wait_ms_max":%d' % received.wait_ms_max)
        pieces.append(b"}")
        return b"".join(pieces)


_NOTHING = (None, None, None, None)
_PLAIN = {status: b'{"status":"%b"}' % status.value.encode() for status in Status}


def result(of: SettleResult) -> bytes:
    """Encode one settle result. Most are a plain `acked`, which is a constant."""
    if not of.late and (of.deadline_ms, of.due_ms, of.now_state, of.error) == _NOTHING:
        return _PLAIN[of.status]
    members: dict[str, object] = {"status": of.status.value}
    if of.late:
        members["late"] = True
    if of.deadline_ms is not None:
        members["deadline_ms"] = of.deadline_ms
    if of.due_ms is not None:
        members["due_ms"] = of.due_ms
    if of.now_state is not None:
        members["now"] = now(of)
    if of.cancelled is not None:
        members["cancelled"] = cancelled(of.cancelled)
    if of.error is not None and of.status is not Status.LOST:
        # `lost` says all there is to say; a batch of late acks needn't repeat it in words.
        members["problem"] = problem(of.error)
    return orjson.dumps(members, default=str)


def now(of: SettleResult) -> dict[str, object] | None:
    """Say where the message is now that the lease is lost."""
    if of.now_state is None:
        return None
    attempt = {} if of.now_attempt is None else {"attempt": of.now_attempt}
    return {"state": of.now_state, **attempt}


def cancelled(of: Cancel) -> dict[str, str]:
    """Say how an operator ended the message, and why."""
    return {"then": of.then, "reason": of.reason}


def result_list(results: Iterable[SettleResult]) -> bytes:
    """Encode results as a JSON array, in the order of the request."""
    acked = _PLAIN[Status.ACKED]
    return b"[%b]" % b",".join([acked if each is ACKED else result(each) for each in results])


def results(of: Sequence[SettleResult]) -> bytes:
    """Encode the answer to a settle."""
    return b'{"results":%b}' % result_list(of)
