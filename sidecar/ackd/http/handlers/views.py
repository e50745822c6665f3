"""Looking, never changing: subscriptions, explain, lag, in-flight, health, documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum

import orjson

from ackd.api.messages import Reason
from ackd.errors import NotFoundError
from ackd.http.formats import problems
from ackd.http.formats.problems import field_errors
from ackd.http.server.reply import Reply
from ackd.http.server.router import Param
from ackd.http.server.service import HandlerCall, number

IN_FLIGHT_MAX = 1000
IN_FLIGHT_DEFAULT = 100
OLDER_MS_MAX = 365 * 24 * 3_600_000
SCOPES = ("group", "sidecar")
TEXT = "text/plain; charset=utf-8"


SCOPE = Param(
    "scope",
    "query",
    "`group` (default): owners of other partitions are asked, and `missing` names those that give "
    "no answer; `sidecar`: only what this one knows itself.",
    {"type": "string", "enum": list(SCOPES)},
)


def _plain(value: object) -> object:
    """Convert what JSON can't hold by itself: sets into lists, everything else (paths, say) into
    text.
    """
    if isinstance(value, frozenset | set):
        return sorted(str(each.value) if isinstance(each, Enum) else str(each) for each in value)
    return str(value)


def as_json(value: object, status: int = 200) -> Reply:
    """Make a JSON answer of plain values."""
    return Reply(orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS), status=status)


async def subscriptions(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions."""
    call.query()
    found = call.service.engine.subscriptions()
    return as_json({"subscriptions": [asdict(each) for each in found]})


async def subscription(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}."""
    call.query()
    return as_json(asdict(call.service.engine.subscription(call.params[0])))


def with_others(fields: Mapping[str, str]) -> bool:
    """Whether the answer is of the whole group, as it is unless `scope` says otherwise. Raises
    BadParameterError.
    """
    scope = fields.get("scope", "group")
    if scope not in SCOPES:
        raise field_errors([("query:scope", f"Expected one of: {', '.join(SCOPES)}.")])
    return scope == "group"


async def explain(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/explain."""
    others = with_others(call.query("scope"))
    return as_json(await call.service.engine.group(call.params[0]).explain(others=others))


async def lag(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/lag."""
    others = with_others(call.query("scope"))
    return as_json(await call.service.engine.group(call.params[0]).lag(others=others))


async def in_flight(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/in-flight."""
    fields = call.query("older_ms", "max", "scope")
    older_ms = number(fields, "older_ms", 0, 0, OLDER_MS_MAX)
    most = number(fields, "max", IN_FLIGHT_DEFAULT, 1, IN_FLIGHT_MAX)
    group, others = call.service.engine.group(call.params[0]), with_others(fields)
    return as_json(await group.in_flight(older_ms, most, others=others))


async def livez(_call: HandlerCall) -> Reply:
    """GET /livez: the process answers."""
    return Reply(b'{"status":"ok"}')


async def readyz(call: HandlerCall) -> Reply:
    """GET /readyz: whether messages can be delivered, and what holds it back."""
    service = call.service
    reasons = [] if service.starting else list(service.engine.readiness())
    if service.starting:
        reasons.append(
            Reason("starting", ok=False, detail="Store and brokers are being connected.")
        )
    if service.draining and not any(each.name == "draining" for each in reasons):
        reasons.append(Reason("draining", ok=False, detail="This sidecar is stopping."))
    ready = all(each.ok for each in reasons)
    return as_json({"ready": ready, "reasons": reasons}, 200 if ready else 503)


async def metrics(call: HandlerCall) -> Reply:
    """GET /metrics."""
    body, content_type = call.service.metrics.render(call.header("Accept"))
    return Reply(body, content_type=content_type)


async def info(call: HandlerCall) -> Reply:
    """GET /v1/info."""
    call.query()
    return as_json(dict(call.service.engine.info()))


async def data_document(call: HandlerCall) -> Reply:
    """GET /openapi.json on the data port."""
    return Reply(call.service.document("data"))


async def admin_document(call: HandlerCall) -> Reply:
    """GET /openapi.json on the admin port."""
    return Reply(call.service.document("admin"))


async def problem(call: HandlerCall) -> Reply:
    """GET /problems/{type}."""
    text = problems.page(call.params[0])
    if text is None:
        raise NotFoundError("There is no such problem; docs/reference/problems.md lists them.")
    return Reply(text.encode(), content_type=TEXT)
