"""Receiving: long poll, joined settle + receive, and the forms of the answer.

Rule R21. While the engine waits, a closed connection cancels the wait and the engine gives back
what it had granted. From the engine's answer to the write nothing is awaited; the write itself
looks at the transport (see `reply`). So leases go back exactly when not one byte was handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TypeVar

import orjson

from ackd.api.messages import Received, ReceiveRequest, SettleItem, SettleResult
from ackd.errors import AckdError, DrainingError
from ackd.http.formats import cloudevents, delivery_json, raw
from ackd.http.formats.decode import BodyDecoder, WrongItems
from ackd.http.formats.model import Item, ReceiveBody
from ackd.http.formats.negotiation import (
    CE_BATCH,
    CE_JSON,
    JSON,
    OCTETS,
    Negotiator,
    preferred_wait_ms,
    prefers_binary_event,
)
from ackd.http.formats.problems import field_errors
from ackd.http.handlers.settle import (
    RETRY_AFTER,
    raise_if_all_away,
    settle_items,
    settled_by,
    with_wrong,
)
from ackd.http.server.app import json_only
from ackd.http.server.kept import Kept
from ackd.http.server.limits import ANSWER_BYTES_DEFAULT, ANSWER_BYTES_MAX
from ackd.http.server.reply import Reply, failure
from ackd.http.server.service import HandlerCall

FORMS = Negotiator([JSON, OCTETS, CE_BATCH, CE_JSON])
# Forms with room for one message only.
ONE = frozenset({OCTETS, CE_JSON})
# In all forms but JSON, one header line has the results of a joined call.
HEADER_SETTLE_MAX = 100
SLOW_READERS = "unread-answers"
_SERVER_ERRORS = 500
T = TypeVar("T")

_RECEIVE = BodyDecoder(ReceiveBody)
_DEFAULTS = ReceiveBody()
NO_WRONG: WrongItems = {}


async def receive(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/receive."""
    service = call.service
    name = call.params[0]
    encoder = service.encoder(name)
    form = FORMS.choose(call.header("Accept"))
    body, wrong = _DEFAULTS, NO_WRONG
    if call.body:
        json_only(call)
        body, wrong = _RECEIVE.decode_items(call.body, "settle", Item)
        _check(call, body)
    if body.settle is None:
        received = await wait_for_messages(call, name, _request(call, body, form))
        received.wait_ms_max = _cut_to_ms(call, body)
        _keep(call, name, body, received)
        return _answer(call, form, encoder, received, None)
    if form != JSON and len(body.settle) + len(wrong) > HEADER_SETTLE_MAX:
        why = f"At most {HEADER_SETTLE_MAX} items with {form}."
        raise field_errors([("/settle", why)])
    items = settled_by(settle_items(service, body.settle, wrong), call)
    request = _request(call, body, form)
    results, outcome = await _settle_and_wait(call, items, name, request)
    if results:  # else the client has gone
        with_wrong(results, wrong)
    raise_if_all_away(results)
    if isinstance(outcome, AckdError):
        return _settled_only(call, form, encoder, results, outcome)
    outcome.wait_ms_max = _cut_to_ms(call, body)
    _keep(call, name, body, outcome)
    return _answer(call, form, encoder, outcome, results)


def _check(call: HandlerCall, body: ReceiveBody) -> None:
    """Refuse parameters that can't work together. Raises BadParameterError."""
    if not body.release_on_close:
        return
    why = None
    if call.request.should_close:
        why = "Needs a connection that stays open between requests."
    elif body.attempt_id is not None:
        why = "Not together with attempt_id, which keeps leases for a broken connection."
    if why is not None:
        raise field_errors([("/release_on_close", why)])


def _keep(call: HandlerCall, name: str, body: ReceiveBody, received: Received) -> None:
    """Remember these leases if they are to be released when the connection ends."""
    if body.release_on_close and received.messages:
        kept = call.connection.kept
        if kept is None:
            kept = call.connection.kept = Kept(call.service)
        kept.add(name, received.messages)


def _wait_ms(call: HandlerCall, body: ReceiveBody) -> int:
    """Return how long the request asks to wait."""
    if body.wait_ms is not None:
        return body.wait_ms
    return preferred_wait_ms(call.request.headers.get("Prefer")) or 0


def _cut_to_ms(call: HandlerCall, body: ReceiveBody) -> int | None:
    """Return the longest wait here if the request asks for a longer one."""
    most = call.service.settings.wait_ms_max
    return most if _wait_ms(call, body) > most else None


def _request(call: HandlerCall, body: ReceiveBody, form: str) -> ReceiveRequest:
    settings = call.service.settings
    return ReceiveRequest(
        max=1 if form in ONE else min(body.max, settings.receive_max),
        wait_ms=min(_wait_ms(call, body), settings.wait_ms_max),
        lease_ms=body.lease_ms,
        bytes_max=min(body.bytes_max or ANSWER_BYTES_DEFAULT, ANSWER_BYTES_MAX),
        attempt_id=body.attempt_id,
        holder=call.worker(),
    )


async def wait_for_messages(call: HandlerCall, name: str, request: ReceiveRequest) -> Received:
    """Ask the engine for messages."""
    service = call.service
    if service.draining:
        raise DrainingError
    unread = call.connection.limits.unread
    if unread.full and not await unread.room(request.wait_ms / 1000):
        return Received([], limited_by=SLOW_READERS)
    return await listening(call, service.engine.receive(name, request), Received([]))


async def _settle_and_wait(
    call: HandlerCall, items: list[SettleItem], name: str, request: ReceiveRequest
) -> tuple[list[SettleResult], Received | AckdError]:
    """Settle and receive in one call. A client that does not read its answers gets no further
    messages.
    """
    engine = call.service.engine
    if call.service.draining:
        return await engine.settle(items), DrainingError()
    if call.connection.limits.unread.full:
        return await engine.settle(items), Received([], limited_by=SLOW_READERS)
    if call.connection.transport is None:
        # The client has hung up already. Its settles count all the same.
        return await engine.settle(items), Received([])
    asking = engine.settle_and_receive(items, name, request)
    return await listening(call, asking, ([], Received([])))


async def listening(call: HandlerCall, asking: Coroutine[None, None, T], nothing: T) -> T:
    """Await the engine. A connection that closes meanwhile cancels only this wait."""
    connection = call.connection
    task = asyncio.current_task()
    if task is None or connection.transport is None:
        asking.close()
        return nothing
    gone = False

    def cancel() -> None:
        nonlocal gone
        gone = True
        task.cancel()

    connection.on_lost = cancel
    try:
        return await asking
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        return nothing
    finally:
        connection.on_lost = None


def _answer(
    call: HandlerCall,
    form: str,
    encoder: delivery_json.DeliveryEncoder,
    received: Received,
    results: Sequence[SettleResult] | None,
) -> Reply:
    """Make the answer in the requested form; it releases its leases if not one byte was handed
    over.
    """
    if form == JSON:
        settled = None if results is None else delivery_json.result_list(results)
        reply = Reply(encoder.received(received, settled))
    else:
        reply = _bytes(call, form, encoder, received, results)
    if received.messages:
        abandon = call.service.abandon
        reply.undelivered = lambda: abandon(received)
    return reply


def _bytes(
    call: HandlerCall,
    form: str,
    encoder: delivery_json.DeliveryEncoder,
    received: Received,
    results: Sequence[SettleResult] | None,
) -> Reply:
    """Make an answer in any form but JSON; headers have what else JSON would say."""
    headers = _headers(received)
    if results is not None:
        headers.append(("Ackd-Settled", ", ".join(each.status.value for each in results)))
    if form == CE_BATCH:
        events = [cloudevents.event_of(each, encoder.payload) for each in received.messages]
        return Reply(cloudevents.batch_of(events), content_type=CE_BATCH, headers=headers)
    if not received.messages:
        return Reply(status=204, headers=headers)
    delivery = received.messages[0]
    if form == CE_JSON:
        body = cloudevents.event_of(delivery, encoder.payload).structured()
        return Reply(body, content_type=cloudevents.STRUCTURED_TYPE, headers=headers)
    if prefers_binary_event(call.request.headers.get("Prefer")):
        event = cloudevents.event_of(delivery, encoder.payload)
        content_type, pairs = event.binary()
        headers += [("Preference-Applied", "cloudevents=binary"), *pairs]
        return Reply(event.data or b"", content_type=content_type, headers=headers)
    headers.extend(raw.facts(delivery))
    return Reply(delivery.record.value or b"", content_type=OCTETS, headers=headers)


def _headers(received: Received) -> raw.HeaderPairs:
    headers = []
    if received.replayed:
        headers.append(("Ackd-Replayed", "true"))
    if received.limited_by is not None:
        headers.append(("Ackd-Limited-By", raw.one_line(received.limited_by)))
    if received.paused is not None:
        headers.append(("Ackd-Paused", raw.one_line(str(received.paused.get("reason", "")))))
    if received.wait_ms_max is not None:
        headers.append(("Ackd-Wait-Ms-Max", str(received.wait_ms_max)))
    return headers


def _settled_only(
    call: HandlerCall,
    form: str,
    encoder: delivery_json.DeliveryEncoder,
    results: Sequence[SettleResult],
    error: AckdError,
) -> Reply:
    """The settle part is done and the receive part failed: neither may hide the other.

    A mistake of the caller is a problem document with `settled` in it. A receive that can't be
    served now is an empty one that says why: with 503 a client would believe that nothing was
    settled.
    """
    if error.status < _SERVER_ERRORS:
        error.facts["settled"] = orjson.loads(delivery_json.result_list(results))
        return failure(error)
    reply = _answer(call, form, encoder, Received([], limited_by=error.type), results)
    reply.headers = (*reply.headers, RETRY_AFTER)
    return reply
