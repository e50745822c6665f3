"""Long operations over HTTP: how requests begin one, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from ackd.api.dead_letters import DryRun, OperationView, Progress
from ackd.api.progress import SeekPlan
from ackd.http.formats.negotiation import JSON
from ackd.http.formats.problems import field_errors
from ackd.http.server.reply import Reply
from ackd.http.server.router import Content, Handler, Param, Route, RouteAnswer
from ackd.http.server.service import HandlerCall

_OPERATION = "/v1/operations/{operation}"
STATES = tuple(each.value for each in Progress)


def begins(
    path: str, name: str, text: str, handler: Handler, *, tag: str, plan: object, body: object
) -> Route:
    """Make the route of a request that begins an operation. `plan`: what a dry run answers."""
    return Route(
        "POST",
        path,
        name,
        text,
        handler,
        tag,
        (
            RouteAnswer(200, "The plan of a dry run. Nothing was changed.", (Content(JSON, plan),)),
            RouteAnswer(
                202,
                "The operation has started. `Location` is the address of its progress.",
                (Content(JSON, OperationView),),
                ("Location",),
            ),
        ),
        ("admin",),
        body=(Content(JSON, body),),
        body_required=True,
        problems=(404, 409, 429, 503),
    )


def begun(found: OperationView | DryRun | SeekPlan) -> Reply:
    """Answer such a request: 202 and where its progress is, or the plan of a dry run."""
    if isinstance(found, OperationView):
        where = ("Location", f"/v1/operations/{found.id}")
        return Reply(orjson.dumps(found), status=202, headers=(where,))
    return Reply(orjson.dumps(found))


@dataclass(slots=True)
class OperationList:
    """Operations, the newest first."""

    operations: list[OperationView]


async def operations(call: HandlerCall) -> Reply:
    """GET /v1/operations."""
    query = call.query("subscription", "state")
    state = query.get("state")
    if state is not None and state not in STATES:
        raise field_errors([("query:state", f"One of: {', '.join(STATES)}.")])
    found = await call.service.engine.dead.operations(query.get("subscription"))
    kept = [each for each in found if state in (None, each.state)]
    return Reply(orjson.dumps(OperationList(kept)))


async def operation(call: HandlerCall) -> Reply:
    """GET /v1/operations/{operation}."""
    call.query()
    return Reply(orjson.dumps(await call.service.engine.dead.operation(call.params[0])))


async def cancel(call: HandlerCall) -> Reply:
    """DELETE /v1/operations/{operation}."""
    call.query()
    return Reply(orjson.dumps(await call.service.engine.dead.cancel(call.params[0])))


def _operation(method: str, name: str, text: str, handler: Handler) -> Route:
    answer = RouteAnswer(200, "The operation.", (Content(JSON, OperationView),))
    return Route(
        method, _OPERATION, name, text, handler, "dead", (answer,), ("admin",), problems=(404, 503)
    )


OPERATION_ROUTES = (
    Route(
        "GET",
        "/v1/operations",
        "operations",
        "Seeks, imports, redrives and purges of the last week, the newest first; at most 100 of "
        "each subscription.",
        operations,
        "dead",
        (RouteAnswer(200, "Operations.", (Content(JSON, OperationList),)),),
        ("admin",),
        params=(
            Param(
                "subscription",
                "query",
                "Only those of this subscription; default: of all that the sidecar has.",
                {"type": "string"},
            ),
            Param("state", "query", "Only those.", {"type": "string", "enum": [*STATES]}),
        ),
        problems=(404, 503),
    ),
    _operation("GET", "operation", "Progress of an operation.", operation),
    _operation(
        "DELETE",
        "cancel_operation",
        "Stop an operation after its current batch.",
        cancel,
    ),
)
