"""The routes for dead letters, a part of the table in `routes`."""

from __future__ import annotations

from ackd.api.dead_letters import DeadPage, DryRun, OperationView
from ackd.http.formats.negotiation import JSON
from ackd.http.handlers import dead_letters
from ackd.http.handlers.dead_letters_model import ID_PATTERN, DeadMessage, PurgeBody, RedriveBody
from ackd.http.handlers.operation_route import begins
from ackd.http.server.router import BOTH, Content, Handler, Param, Route, RouteAnswer

_BASE = "/v1/subscriptions/{subscription}/dead"
_OPERATION = "/v1/operations/{operation}"


def _begin(verb: str, text: str, handler: Handler, body: object) -> Route:
    path, name = f"{_BASE}:{verb}", f"dead_{verb}"
    return begins(path, name, text, handler, tag="dead", plan=DryRun, body=body)


def _operation(method: str, name: str, text: str, handler: Handler) -> Route:
    answer = RouteAnswer(200, "The operation.", (Content(JSON, OperationView),))
    return Route(
        method, _OPERATION, name, text, handler, "dead", (answer,), ("admin",), problems=(404, 503)
    )


DEAD_ROUTES = (
    Route(
        "GET",
        _BASE,
        "dead_list",
        "List dead letters, partition by partition, the oldest first.",
        dead_letters.page,
        "dead",
        (
            RouteAnswer(
                200,
                "A page of dead letters; pass its `cursor` to get the next page.",
                (Content(JSON, DeadPage),),
            ),
        ),
        BOTH,
        params=(
            Param(
                "cursor",
                "query",
                "`cursor` of the previous page.",
                {"type": "string", "pattern": ID_PATTERN},
            ),
            Param(
                "max",
                "query",
                f"How many; default {dead_letters.PAGE_DEFAULT}.",
                {"type": "integer", "minimum": 1, "maximum": dead_letters.PAGE_MAX},
            ),
        ),
        problems=(404, 429, 503),
    ),
    Route(
        "GET",
        f"{_BASE}/{{dead}}",
        "dead_peek",
        "Read one dead letter with its content. Nothing changes.",
        dead_letters.peek,
        "dead",
        (RouteAnswer(200, "The dead letter.", (Content(JSON, DeadMessage),)),),
        BOTH,
        problems=(404, 429, 503),
    ),
    _begin(
        "redrive",
        "Deliver dead letters again. Starts an operation.",
        dead_letters.redrive,
        RedriveBody,
    ),
    _begin(
        "purge",
        "Drop dead letters: ackd lists them no more. Starts an operation.",
        dead_letters.purge,
        PurgeBody,
    ),
    _operation("GET", "operation", "Progress of an operation.", dead_letters.operation),
    _operation(
        "DELETE",
        "cancel_operation",
        "Stop an operation after its current batch.",
        dead_letters.cancel,
    ),
)
