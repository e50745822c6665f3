"""The common shape of routes that begin an operation: a dry run answers a plan, else 202."""

from __future__ import annotations

from ackd.api.dead_letters import OperationView
from ackd.http.formats.negotiation import JSON
from ackd.http.server.router import Content, Handler, Route, RouteAnswer


def begins(
    path: str, name: str, text: str, handler: Handler, *, tag: str, plan: object, body: object
) -> Route:
    """Make such a route. `plan`: what a dry run answers."""
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
