"""Builds the request of a call: headers and body, by the subscription's settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ackd.api.messages import Delivery, Received
from ackd.config.push import PushSettings
from ackd.http.formats import cloudevents, raw
from ackd.http.formats.delivery_json import DeliveryEncoder, content_type_of
from ackd.http.formats.negotiation import CE_BATCH, JSON, OCTETS
from ackd.http.formats.raw import HeaderPairs
from ackd.push.signature import signed

_BY_PAYLOAD = {"json": JSON, "text": "text/plain; charset=utf-8", "binary": OCTETS}
_TRACE = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class PushRequest:
    """Headers and body of one POST to the application."""

    headers: HeaderPairs
    body: bytes


class PushRequestBuilder:
    """Makes requests for one subscription. `payload` is its setting."""

    def __init__(self, settings: PushSettings, payload: str, secrets: Sequence[bytes]) -> None:
        self._settings = settings
        self._payload = payload
        self._encoder = DeliveryEncoder(payload)
        self._secrets = secrets

    def request(self, messages: Sequence[Delivery], now_s: int) -> PushRequest:
        """Build a call with these messages, one of them in single mode. `now_s` is Unix time."""
        if self._settings.mode == "batch":
            made, message_id = self._batch(messages), _batch_id(messages)
        else:
            made, message_id = self._single(messages[0]), raw.one_line(messages[0].id)
        if self._secrets:
            made.headers.extend(signed(self._secrets, message_id, now_s, made.body))
        return made

    def _batch(self, messages: Sequence[Delivery]) -> PushRequest:
        if self._settings.format == "plain":
            body = self._encoder.received(Received(list(messages)))
            return PushRequest([("Content-Type", JSON)], body)
        events = [cloudevents.event_of(each, self._payload) for each in messages]
        return PushRequest([("Content-Type", CE_BATCH)], cloudevents.batch_of(events))

    def _single(self, message: Delivery) -> PushRequest:
        value = message.record.value or b""
        if self._settings.format == "plain":
            kind = content_type_of(message.record.headers)
            fits = None if kind is None else raw.plain(kind.encode("utf-8", "replace"))
            headers = [("Content-Type", fits or _BY_PAYLOAD[self._payload])]
            return PushRequest([*headers, *raw.facts(message), *_trace(message)], value)
        event = cloudevents.event_of(message, self._payload)
        headers = [
            ("Ackd-Id", raw.one_line(message.id)),
            ("Ackd-Lease", message.lease),
            ("Ackd-Attempt", str(message.attempt)),
            *_trace(message),
        ]
        if self._settings.format == "cloudevents-structured":
            headers.append(("Content-Type", cloudevents.STRUCTURED_TYPE))
            return PushRequest(headers, event.structured())
        kind, pairs = event.binary()
        if kind:
            headers.append(("Content-Type", kind))
        return PushRequest([*headers, *pairs], event.data or b"")


def _trace(message: Delivery) -> HeaderPairs:
    """The message's trace context, so that the application's spans join its trace."""
    found: dict[str, str] = {}
    for name, value in message.record.headers:
        lower = name.lower()
        if lower in _TRACE and (text := raw.plain(value)):
            found.setdefault(lower, text)
    return list(found.items())


def _batch_id(messages: Sequence[Delivery]) -> str:
    """Make the id of a batch: the same messages get the same id, however often ackd sends them."""
    ids = "\n".join(sorted(message.id for message in messages))
    return f"batch-{blake2b(ids.encode('utf-8', 'replace'), digest_size=12).hexdigest()}"
