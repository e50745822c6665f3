"""The routes for outboxes, a part of the table in `routes`."""

from __future__ import annotations

from ackd.api.outbox import OutboxMessage
from ackd.http.formats.negotiation import JSON
from ackd.http.handlers import outbox
from ackd.http.server.router import BOTH, Content, Param, Route, RouteAnswer

PREFER = Param(
    "Prefer",
    "header",
    "`respond-async` (RFC 7240): answer 202 as soon as the message is durable in the outbox.",
    {"type": "string"},
)
_MESSAGE = "/v1/outbox/{broker}/{number}"
_ANSWER = (RouteAnswer(200, "The message.", (Content(JSON, OutboxMessage),)),)

OUTBOX_ROUTES = (
    Route(
        "GET",
        "/v1/outbox",
        "outboxes",
        "How many messages wait to be published, and which sidecar sends them.",
        outbox.outboxes,
        "publish",
        (RouteAnswer(200, "One entry per broker.", (Content(JSON, outbox.OutboxList),)),),
        BOTH,
    ),
    Route(
        "GET",
        _MESSAGE,
        "outbox_message",
        "State of a message that was accepted with 202.",
        outbox.message,
        "publish",
        _ANSWER,
        BOTH,
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_MESSAGE}/retry",
        "outbox_retry",
        "Send a message again that the broker refused.",
        outbox.again,
        "publish",
        _ANSWER,
        ("admin",),
        problems=(404, 409, 503),
    ),
)
