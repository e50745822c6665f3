"""Publishing: the body is the value and headers say the rest, or a batch in JSON.

Bytes in, same bytes out: a raw body is not looked at, and the JSON of `{"json": ...}` keeps its
digits. A batch of which nothing was stored has the status of its first problem, for the reason of
rule R22.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated

import msgspec
import orjson
from msgspec import UNSET, Meta

from ackd.api.messages import Accepted, Published, PublishRequest
from ackd.core.ids import message_id
from ackd.errors import AckdError, BadBodyError
from ackd.http.formats import cloudevents
from ackd.http.formats.decode import FAULTS_MAX, BodyDecoder
from ackd.http.formats.model import (
    DELAY_MS_MAX,
    HEADERS_MAX,
    INT32_MAX,
    Base64,
    BatchBody,
    MessageBody,
)
from ackd.http.formats.negotiation import CE_BATCH, CE_JSON, media_type, prefers_async
from ackd.http.formats.problems import field_errors, problem
from ackd.http.formats.quota_headers import rate_limit_headers
from ackd.http.handlers import outbox, own_headers
from ackd.http.server.app import json_only
from ackd.http.server.reply import Reply, failure
from ackd.http.server.service import HandlerCall, whole
from ackd.ports import Headers, Outgoing, Stored
from ackd.unreadable import UNREADABLE

BATCH_MAX = 1000
KEY_CHARS_MAX = 255
_HEADER_PREFIX = own_headers.HEADER_PREFIX
# ackd passes these on unchanged: tracing, and CloudEvents in binary mode.
_THROUGH = (b"traceparent", b"tracestate")
_CE = b"ce-"
_FORM = "application/x-www-form-urlencoded"
_IDEMPOTENCY = re.compile(r'"?([\x21\x23-\x7e]{1,255})"?')

_NO_VALUE = (
    'One of json, text, base64 must hold the value; "tombstone": true publishes one without.'
)

_BATCH = BodyDecoder(BatchBody)
_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])
_PAIRS = msgspec.json.Decoder(
    Annotated[list[tuple[str, str | Base64 | None]], Meta(max_length=HEADERS_MAX)]
)


async def one(call: HandlerCall) -> Reply:
    """POST /v1/topics/{topic}/messages."""
    broker = call.query("broker").get("broker")
    message = _raw_message(call)
    published = await call.service.engine.publish(broker, _request(call, [message]))
    [result] = published.results
    if isinstance(result, AckdError):
        raise result
    if isinstance(result, Accepted):
        return outbox.accepted(result, _headers_of(published))
    return Reply(orjson.dumps(_stored(result)), status=201, headers=_headers_of(published))


async def batch(call: HandlerCall) -> Reply:
    """POST /v1/topics/{topic}/messages:batch."""
    broker = call.query("broker").get("broker")
    faults: list[tuple[str, str]] = []
    own_headers.unknown(call.request.fields(), faults, message=False)
    if faults:
        raise field_errors(faults)
    messages = _events(call) if _kind(call) == CE_BATCH else _messages(call)
    published = await call.service.engine.publish(broker, _request(call, messages))
    results = [_outcome(each) for each in published.results]
    errors = [each for each in published.results if isinstance(each, AckdError)]
    if len(errors) == len(results):
        errors[0].facts["results"] = results
        return failure(errors[0])
    later = all(isinstance(each, Accepted) for each in published.results)
    answer = orjson.dumps({"results": results}, default=str)
    return Reply(answer, status=202 if later else 200, headers=_headers_of(published))


def _kind(call: HandlerCall) -> str:
    return media_type(call.request.headers.get("Content-Type"))


def _messages(call: HandlerCall) -> list[Outgoing]:
    json_only(call)
    body = _BATCH.decode(call.body)
    _few(len(body.messages), "/messages")
    topic = call.params[0]
    return [_message(topic, each, f"/messages/{at}") for at, each in enumerate(body.messages)]


def _few(count: int, at: str) -> None:
    if count > BATCH_MAX:
        raise field_errors([(at, f"At most {BATCH_MAX} messages in one request.")])


def _id(stored: Stored) -> str | None:
    """Return the message's id; None for a delayed message, which has no offset before it is due."""
    if stored.offset < 0:
        return None
    return message_id(stored.topic, stored.partition, stored.offset)


def _stored(stored: Stored) -> dict[str, object]:
    return {
        "id": _id(stored),
        "topic": stored.topic,
        "partition": stored.partition,
        "offset": stored.offset if stored.offset >= 0 else None,
    }


def _outcome(result: Stored | Accepted | AckdError) -> dict[str, object]:
    if isinstance(result, AckdError):
        return {"status": "failed", "problem": problem(result)}
    if isinstance(result, Accepted):
        return {"status": "accepted"} | outbox.view(result)
    return {"status": "stored", "id": _id(result)}


def _headers_of(published: Published) -> Sequence[tuple[str, str]]:
    headers = rate_limit_headers(published.quotas)
    if published.replayed:
        headers.append(("Idempotent-Replayed", "true"))
    return headers


def _request(call: HandlerCall, messages: Sequence[Outgoing]) -> PublishRequest:
    """Make the engine's request. With an Idempotency-Key it has a fingerprint of the messages."""
    given = call.one_header("Idempotency-Key")
    later = prefers_async(call.request.headers.get("Prefer"))
    if given is None:
        return PublishRequest(messages, respond_async=later)
    found = _IDEMPOTENCY.fullmatch(given)
    if found is None:
        why = f"Expected 1 to {KEY_CHARS_MAX} visible ASCII characters."
        raise field_errors([("header:Idempotency-Key", why)])
    return PublishRequest(messages, found[1], _fingerprint(messages), respond_async=later)


def _fingerprint(messages: Sequence[Outgoing]) -> bytes:
    """Hash everything that makes up the messages into sixteen bytes; each part with its length
    before it.
    """
    digest = blake2b(digest_size=16)

    def add(part: bytes | None) -> None:
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")

    for each in messages:
        add(each.topic.encode("utf-8", "surrogatepass"))
        add(each.key)
        add(each.value)
        add(b"%d" % len(each.headers))
        for name, value in each.headers:
            add(name.encode("utf-8", "surrogatepass"))
            add(value)
        add(f"{each.partition} {each.delay_ms}".encode())
    return digest.digest()


# --- a message in JSON ----------------------------------------------------------------------------


def _message(topic: str, body: MessageBody, at: str) -> Outgoing:
    value = _value(body, at)
    return Outgoing(
        topic=topic,
        key=_bytes(body.key),
        value=value,
        headers=tuple((name, _bytes(each)) for name, each in body.headers),
        partition=body.partition,
        delay_ms=body.delay_ms,
    )


def _value(body: MessageBody, at: str) -> bytes | None:
    """Return the bytes of the value, and None only for a tombstone."""
    given = [name for name in ("json", "text", "base64") if getattr(body, name) is not UNSET]
    if len(given) > 1:
        raise field_errors([(at, f"Only one of {', '.join(given)} may hold the value.")])
    json = b"" if body.json is UNSET else bytes(body.json)
    if body.tombstone:
        # As a receive shows one: the field of the value may be there, and null.
        has = isinstance(body.text, str) or isinstance(body.base64, bytes)
        if has or json not in {b"", b"null"}:
            raise field_errors([(f"{at}/tombstone", "A tombstone has no value.")])
        return None
    if json:
        if not cloudevents.is_text(json):
            raise BadBodyError(f"{at}/json is not UTF-8.")
        return json
    if isinstance(body.text, str):
        return body.text.encode()
    if isinstance(body.base64, bytes):
        return body.base64
    raise field_errors([(at, _NO_VALUE)])


def _bytes(value: str | Base64 | None) -> bytes | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return value.base64


# --- CloudEvents in JSON --------------------------------------------------------------------------


def _events(call: HandlerCall) -> list[Outgoing]:
    """Read a batch of events; ackd stores each as it is."""
    try:
        raws = _EVENTS.decode(call.body)
    except UNREADABLE as error:
        raise BadBodyError(f"Not a JSON list of events: {error}.") from error
    _few(len(raws), "")
    if not raws:
        raise field_errors([("", "Expected at least one event.")])
    faults: list[tuple[str, str]] = []
    messages = [_event(call, bytes(raw), f"/{at}", faults) for at, raw in enumerate(raws)]
    if faults:
        raise field_errors(faults[:FAULTS_MAX])
    return messages


def _event(call: HandlerCall, raw: bytes, at: str, faults: list[tuple[str, str]]) -> Outgoing:
    key = cloudevents.structured_in(raw, at, faults)
    headers = (("content-type", cloudevents.STRUCTURED_TYPE.encode()),)
    return Outgoing(call.params[0], None if key is None else key.encode(), raw, headers)


# --- a message as it is ---------------------------------------------------------------------------


def _raw_message(call: HandlerCall) -> Outgoing:
    faults: list[tuple[str, str]] = []
    tombstone = (call.one_header("Ackd-Tombstone") or "false").lower()
    if tombstone not in {"true", "false"}:
        faults.append(("header:Ackd-Tombstone", "Expected true or false."))
    elif tombstone == "true" and call.body:
        faults.append(("header:Ackd-Tombstone", "A tombstone has no body."))
    attributes = cloudevents.binary_in(call.request.fields(), faults)
    partition_key = attributes.get("partitionkey")
    if _kind(call) == CE_JSON:
        partition_key = cloudevents.structured_in(call.body, "", faults)
    key = _key(call, faults)
    if key is None and partition_key is not None:
        key = partition_key.encode()
    partition = _number(call, "Ackd-Partition", INT32_MAX, faults)
    delay_ms = _number(call, "Ackd-Delay-Ms", DELAY_MS_MAX, faults)
    headers = _headers(call, attributes, faults)
    own_headers.unknown(call.request.fields(), faults, message=True)
    if faults:
        raise field_errors(faults)
    value = None if tombstone == "true" else call.body
    return Outgoing(call.params[0], key, value, headers, partition, delay_ms or 0)


def _key(call: HandlerCall, faults: list[tuple[str, str]]) -> bytes | None:
    plain = call.one_header("Ackd-Key")
    encoded = call.one_header("Ackd-Key-Base64")
    if plain is not None and encoded is not None:
        faults.append(("header:Ackd-Key", "Only one of Ackd-Key and Ackd-Key-Base64."))
    if encoded is not None:
        try:
            return b64decode(encoded, validate=True)
        except ValueError:
            faults.append(("header:Ackd-Key-Base64", "Not base64."))
            return None
    # Bytes that are not UTF-8 were kept as surrogates; this gives the very bytes back.
    return None if plain is None else plain.encode("utf-8", "surrogateescape")


def _number(call: HandlerCall, name: str, high: int, faults: list[tuple[str, str]]) -> int | None:
    text = call.one_header(name)
    if text is None:
        return None
    value = whole(text)
    if value is not None and value <= high:
        return value
    faults.append((f"header:{name}", f"Expected a whole number from 0 to {high}."))
    return None


def _headers(
    call: HandlerCall, attributes: dict[str, str], faults: list[tuple[str, str]]
) -> Headers:
    """The message's headers: `Ackd-Headers` (JSON, anything), then `Ackd-Header-*`, tracing, and
    the attributes of a CloudEvent (in the Kafka binding's form).
    """
    pairs: list[tuple[str, bytes | None]] = []
    listed = call.one_header("Ackd-Headers")
    if listed is not None:
        try:
            pairs.extend((name, _bytes(value)) for name, value in _PAIRS.decode(listed))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            faults.append(("header:Ackd-Headers", f"Not a JSON list of pairs: {error}."))
    kind = call.request.headers.get("Content-Type", "")
    # curl sends this type by default, so it says nothing about the message.
    if kind and not kind.startswith(_FORM):
        pairs.append(("content-type", kind.encode("utf-8", "surrogateescape")))
    for name, value in call.request.fields():
        lower = name.lower()
        if lower.startswith(_HEADER_PREFIX) and len(lower) > len(_HEADER_PREFIX):
            pairs.append((name[len(_HEADER_PREFIX) :].decode("ascii", "replace"), value))
        elif lower in _THROUGH or (lower.startswith(_CE) and lower != _CE and not attributes):
            pairs.append((lower.decode("ascii", "replace"), value))
    pairs.extend((f"ce_{name}", value.encode()) for name, value in attributes.items())
    return tuple(pairs)
