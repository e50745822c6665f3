"""Looking at messages of a group without their content: one by its id, and all unfinished ones."""

from __future__ import annotations

from ackd.api.messages import STATES, GroupMessages, MessageView
from ackd.core.ids import message_id
from ackd.errors import NotFoundError
from ackd.http.formats.negotiation import JSON
from ackd.http.formats.problems import field_errors
from ackd.http.handlers.views import SCOPE, as_json, with_others
from ackd.http.server.reply import Reply
from ackd.http.server.router import BOTH, Content, Param, Route, RouteAnswer
from ackd.http.server.service import HandlerCall, number, whole

PAGE_MAX = 1000
PAGE_DEFAULT = 100
_MESSAGES = "/v1/subscriptions/{subscription}/messages"


async def messages(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/messages."""
    fields = call.query("state", "cursor", "max", "scope")
    states = frozenset(fields["state"].split(",") if "state" in fields else STATES)
    if not states <= frozenset(STATES):
        raise field_errors([("query:state", f"Some of: {', '.join(STATES)}.")])
    most = number(fields, "max", PAGE_DEFAULT, 1, PAGE_MAX)
    group, others = call.service.engine.group(call.params[0]), with_others(fields)
    return as_json(await group.messages(states, fields.get("cursor"), most, others=others))


async def message(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/messages/{topic}/{partition}/{offset}."""
    others = with_others(call.query("scope"))
    name = message_of(call)
    return as_json(await call.service.engine.group(call.params[0]).message(name, others=others))


def message_of(call: HandlerCall) -> str:
    """The id of the message that a path names. Raises NotFoundError."""
    topic, *numbers = call.params[1:]
    partition, offset = (whole(each) for each in numbers)
    if partition is None or offset is None:
        raise NotFoundError(f"No message has the id {'/'.join(call.params[1:])}.")
    return message_id(topic, partition, offset)


MESSAGE_ROUTES = (
    Route(
        "GET",
        _MESSAGES,
        "messages",
        "List unfinished messages that were read from the broker: those delivered first the "
        "longest ago first, then those that were never delivered. Without their content.",
        messages,
        "look",
        (
            RouteAnswer(
                200,
                "A page; pass its `cursor` to get the next one.",
                (Content(JSON, GroupMessages),),
            ),
        ),
        BOTH,
        params=(
            Param(
                "state",
                "query",
                f"Only those in these states, with commas between them: {', '.join(STATES)}.",
                {"type": "string"},
            ),
            Param("cursor", "query", "`cursor` of the previous page.", {"type": "string"}),
            Param(
                "max",
                "query",
                f"How many; default {PAGE_DEFAULT}.",
                {"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
            ),
            SCOPE,
        ),
        problems=(404, 503),
    ),
    Route(
        "GET",
        f"{_MESSAGES}/{{topic}}/{{partition}}/{{offset}}",
        "message",
        "Where one message is: its state, who holds it, what it waits for, and its deliveries so "
        "far. Without its content, which only the address of its dead letter shows.",
        message,
        "look",
        (RouteAnswer(200, "The message.", (Content(JSON, MessageView),)),),
        BOTH,
        params=(SCOPE,),
        problems=(404, 429, 503),
    ),
)
