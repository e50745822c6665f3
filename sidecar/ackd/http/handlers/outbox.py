"""Messages in the outbox: the answer to a publish that accepted one, their status, the routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from urllib.parse import quote

import orjson
from msgspec import Struct

from ackd.api.messages import Accepted
from ackd.api.outbox import OutboxMessage, OutboxView
from ackd.errors import UnknownOutboxMessageError
from ackd.http.formats.negotiation import JSON
from ackd.http.server.reply import Reply
from ackd.http.server.router import BOTH, Content, Param, Route, RouteAnswer
from ackd.http.server.service import HandlerCall, whole


class AcceptedMessage(Struct, frozen=True):
    """The message is durable and will be sent; `status_url` tells how far it is."""

    outbox_id: str
    due_ms: int
    status_url: str


class OutboxList(Struct, frozen=True):
    """One entry per broker whose outbox is on."""

    outboxes: list[OutboxView]


def view(accepted: Accepted) -> dict[str, object]:
    """Make the answer for an accepted message."""
    url = f"/v1/outbox/{quote(accepted.broker, safe='')}/{accepted.number}"
    return {"outbox_id": accepted.id, "due_ms": accepted.due_ms, "status_url": url}


def accepted(result: Accepted, more: Sequence[tuple[str, str]]) -> Reply:
    """Answer 202; `Location` is the address that tells how far the message is."""
    members = view(result)
    headers = (("Location", str(members["status_url"])), *more)
    return Reply(orjson.dumps(members), status=202, headers=headers)


async def outboxes(call: HandlerCall) -> Reply:
    """GET /v1/outbox."""
    call.query()
    return Reply(orjson.dumps({"outboxes": call.service.engine.outbox.views()}))


async def message(call: HandlerCall) -> Reply:
    """GET /v1/outbox/{broker}/{number}."""
    call.query()
    return _message(await call.service.engine.outbox.message(*_id(call)))


async def again(call: HandlerCall) -> Reply:
    """POST /v1/outbox/{broker}/{number}/retry."""
    call.query()
    return _message(await call.service.engine.outbox.again(*_id(call)))


def _id(call: HandlerCall) -> tuple[str, int]:
    number = whole(call.params[1])
    if number is None:
        raise UnknownOutboxMessageError
    return call.params[0], number


def _message(found: OutboxMessage) -> Reply:
    known = {name: value for name, value in asdict(found).items() if value is not None}
    return Reply(orjson.dumps(known))


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
        outboxes,
        "publish",
        (RouteAnswer(200, "One entry per broker.", (Content(JSON, OutboxList),)),),
        BOTH,
    ),
    Route(
        "GET",
        _MESSAGE,
        "outbox_message",
        "State of a message that was accepted with 202.",
        message,
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
        again,
        "publish",
        _ANSWER,
        ("admin",),
        problems=(404, 409, 503),
    ),
)
