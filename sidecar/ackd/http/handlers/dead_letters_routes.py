"""The routes for dead letters, a part of the table in `routes`."""

from __future__ import annotations

from ackd.api.dead_letters import DeadPage, DryRun, OperationView
from ackd.http.formats.negotiation import JSON
from ackd.http.handlers import dead_letters
from ackd.http.handlers.dead_letters_model import ID_PATTERN, DeadMessage, PurgeBody, RedriveBody
from ackd.http.handlers.operation_route import begins
from ackd.http.server.router import BOTH, Answer, Content, Handler, Param, Route

_BASE = "/v1/subscriptions/{subscription}/dead"
_OPERATION = "/v1/operations/{operation}"


def _begin(verb: str, text: str, handler: Handler, body: object) -> Route:
    path, name = f"{_BASE}:{verb}", f"dead_{verb}"
    return begins(path, name, text, handler, tag="dead", plan=DryRun, body=body)


def _operation(method: str, name: str, text: str, handler: Handler) -> Route:
    answer = Answer(200, "The operation.", (Content(JSON, OperationView),))
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
        (Answer(200, "A page; `cursor` leads to the next one.", (Content(JSON, DeadPage),)),),
        BOTH,
        params=(
            Param(
                "cursor",
                "query",
                "From the page before.",
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
        "One dead letter with its content; it stays where it is.",
        dead_letters.peek,
        "dead",
        (Answer(200, "The dead letter.", (Content(JSON, DeadMessage),)),),
        BOTH,
        problems=(404, 429, 503),
    ),
    _begin(
        "redrive",
        "Hand dead letters out again, as an operation.",
        dead_letters.redrive,
        RedriveBody,
    ),
    _begin("purge", "Forget dead letters, as an operation.", dead_letters.purge, PurgeBody),
    _operation("GET", "operation", "How far an operation is.", dead_letters.operation),
    _operation(
        "DELETE",
        "cancel_operation",
        "Stop an operation behind its current batch.",
        dead_letters.cancel,
    ),
)
