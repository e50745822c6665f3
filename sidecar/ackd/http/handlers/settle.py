"""Settling leases: many at once, or one by its address. An answer never says more than is durable
(I7).

Rule R22: when every item is unavailable the whole request is 503, so that a client that looks at
nothing but the status is not misled; when some are, it is 200 with Retry-After, and each item says
its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from msgspec.structs import asdict

from ackd.api.messages import SettleItem, SettleResult, SettleVerb, Status
from ackd.errors import BadLeaseTokenError, LeaseLostError, StoreError
from ackd.http.formats import delivery_json
from ackd.http.formats.decode import BodyDecoder, WrongItems
from ackd.http.formats.model import OPTIONS, Item, SettleBody
from ackd.http.formats.problems import field_errors
from ackd.http.server.app import json_only
from ackd.http.server.reply import Reply
from ackd.http.server.router import Handler
from ackd.http.server.service import HandlerCall, Service

RETRY_AFTER = ("Retry-After", "1")

_SETTLE = BodyDecoder(SettleBody)


def settle_items(service: Service, items: Sequence[Item], wrong: WrongItems) -> list[SettleItem]:
    """Make the engine's items of the request's good ones. Raises BadParameterError if there are
    too many, `wrong` ones included.
    """
    most = service.settings.settle_max
    if len(items) + len(wrong) > most:
        raise field_errors([("/items", f"At most {most} items in one request.")])
    return [item.item() for item in items]


def settled_by(items: list[SettleItem], call: HandlerCall) -> list[SettleItem]:
    """Say who settles, with what does not finish its message."""
    for item in items:
        if item.do is not SettleVerb.ACK:
            item.holder = call.worker()
    return items


def with_wrong(results: list[SettleResult], wrong: WrongItems) -> list[SettleResult]:
    """Put `invalid` results at the places of wrong items, so that each item has its own."""
    for place in sorted(wrong):
        results.insert(place, SettleResult(Status.INVALID, error=wrong[place]))
    return results


def raise_if_all_away(results: Sequence[SettleResult]) -> bool:
    """Return whether some results are unavailable. Raises the store's error if all are (R22)."""
    away = [each for each in results if each.status is Status.UNAVAILABLE]
    if away and len(away) == len(results):
        raise away[0].error or StoreError()
    return bool(away)


async def settle(call: HandlerCall) -> Reply:
    """POST /v1/settle."""
    json_only(call)
    body, wrong = _SETTLE.decode_items(call.body, "items", Item)
    items = settle_items(call.service, body.items, wrong)
    results = with_wrong(await call.service.engine.settle(settled_by(items, call)), wrong)
    away = raise_if_all_away(results)
    return Reply(delivery_json.results(results), headers=(RETRY_AFTER,) if away else ())


async def _one(call: HandlerCall, item: SettleItem) -> Reply:
    """Settle one lease; the HTTP status is what a batch says per item."""
    [result] = await call.service.engine.settle(settled_by([item], call))
    if result.status is Status.LOST:
        detail = "" if result.error is None else result.error.detail
        now = delivery_json.now(result)
        facts: dict[str, object] = {} if now is None else {"now": now}
        if result.cancelled is not None:
            facts["cancelled"] = delivery_json.cancelled(result.cancelled)
        raise LeaseLostError(detail, **facts)
    if result.status is Status.INVALID:
        raise result.error or BadLeaseTokenError()
    if result.status is Status.UNAVAILABLE:
        raise result.error or StoreError()
    return Reply(delivery_json.result(result))


def _form(verb: SettleVerb) -> Handler:
    decoder = BodyDecoder(OPTIONS[verb])

    async def handler(call: HandlerCall) -> Reply:
        if call.body:
            json_only(call)
        options = decoder.decode(call.body or b"{}")
        return await _one(call, SettleItem(call.params[0], verb, **asdict(options)))

    handler.__doc__ = f"POST /v1/leases/{{lease}}/{verb.value}."
    return handler


ONE: Mapping[SettleVerb, Handler] = {verb: _form(verb) for verb in SettleVerb}
"""The handler of each verb's own address."""


async def look(call: HandlerCall) -> Reply:
    """GET /v1/leases/{lease}."""
    call.query()
    view = await call.service.engine.lease(call.params[0])
    members: dict[str, object] = {"state": view.state, "attempt": view.attempt}
    if view.deadline_ms is not None:
        members["deadline_ms"] = view.deadline_ms
    if view.due_ms is not None:
        members["due_ms"] = view.due_ms
    if view.late:
        members["late"] = True
    return Reply(orjson.dumps(members))
