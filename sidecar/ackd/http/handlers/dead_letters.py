"""Dead letters over HTTP: list, peek, redrive, purge, and the operations that do it."""

from __future__ import annotations

from dataclasses import asdict

import orjson

from ackd.api.dead_letters import DeadRequest, Kind, OperationView
from ackd.http.formats import delivery_json
from ackd.http.formats.decode import BodyDecoder
from ackd.http.formats.problems import field_errors
from ackd.http.handlers.dead_letters_model import IDS_MAX, PurgeBody, RedriveBody
from ackd.http.server.app import json_only
from ackd.http.server.reply import Reply
from ackd.http.server.service import HandlerCall, number

PAGE_MAX = 1000
PAGE_DEFAULT = IDS_MAX

_REDRIVE = BodyDecoder(RedriveBody)
_PURGE = BodyDecoder(PurgeBody)


async def page(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/dead."""
    fields = call.query("cursor", "max")
    most = number(fields, "max", PAGE_DEFAULT, 1, PAGE_MAX)
    found = await call.service.engine.dead.page(call.params[0], fields.get("cursor"), most)
    return Reply(orjson.dumps(found))


async def peek(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/dead/{dead}."""
    call.query()
    name = call.params[0]
    letter = await call.service.engine.dead.peek(name, call.params[1])
    members = asdict(letter.view) | {
        "key": delivery_json.text_or_base64(letter.record.key),
        "headers": [
            (delivery_json.safe(header), delivery_json.text_or_base64(value))
            for header, value in letter.headers
        ],
    }
    value = call.service.encoder(name).value(letter.record.value)
    return Reply(orjson.dumps(members)[:-1] + b"," + value)


async def redrive(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/dead:redrive."""
    json_only(call)
    return await _begin(call, _REDRIVE.decode(call.body))


async def purge(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/dead:purge."""
    json_only(call)
    return await _begin(call, _PURGE.decode(call.body))


async def _begin(call: HandlerCall, body: RedriveBody | PurgeBody) -> Reply:
    if body.ids and (body.filter is not None or body.max is not None):
        raise field_errors([("/ids", "Either ids, or filter and max.")])
    request: DeadRequest = body.request()
    _confirmed(call.params[0], request)
    found = await call.service.engine.dead.begin(call.params[0], request)
    if isinstance(found, OperationView):
        where = ("Location", f"/v1/operations/{found.id}")
        return Reply(orjson.dumps(found), status=202, headers=(where,))
    return Reply(orjson.dumps(found))


def _confirmed(name: str, request: DeadRequest) -> None:
    """Refuse a redrive of everything that does not name its subscription: an empty body by mistake
    would deliver all again. Raises BadParameterError.
    """
    sure = request.dry_run or request.confirm == name
    if request.kind is Kind.REDRIVE and request.takes_all and not sure:
        why = (
            f"This redrives every dead letter: confirm must be {name!r}, or give ids, filter, max."
        )
        raise field_errors([("/confirm", why)])


async def operation(call: HandlerCall) -> Reply:
    """GET /v1/operations/{operation}."""
    call.query()
    return Reply(orjson.dumps(await call.service.engine.dead.operation(call.params[0])))


async def cancel(call: HandlerCall) -> Reply:
    """DELETE /v1/operations/{operation}."""
    call.query()
    return Reply(orjson.dumps(await call.service.engine.dead.cancel(call.params[0])))
