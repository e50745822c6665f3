"""What operators change while a subscription runs (admin port): bodies, handlers, routes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from ackd.api.control import CancelTo, Scope
from ackd.api.messages import SubscriptionView
from ackd.config.fields import FieldKind, Spec, Unit
from ackd.config.live_settings import LIVE, pointer
from ackd.config.mistakes import MistakesError
from ackd.errors import BadBodyError
from ackd.http.formats.decode import BodyDecoder
from ackd.http.formats.model import DELAY_MS_MAX
from ackd.http.formats.negotiation import JSON
from ackd.http.formats.problems import field_errors
from ackd.http.handlers.messages import message_of
from ackd.http.handlers.views import as_json
from ackd.http.server.app import json_only
from ackd.http.server.reply import Reply
from ackd.http.server.router import Content, Route, RouteAnswer
from ackd.http.server.service import HandlerCall
from ackd.telemetry.caller import calling
from ackd.unreadable import UNREADABLE

ScopeField = Annotated[
    Scope,
    Meta(description="`group`: every sidecar of the subscription; `pod`: this process only."),
]


class PauseBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Stop delivering messages; may be left out."""

    scope: ScopeField = "group"
    reason: Annotated[str, Meta(max_length=1000, description="Why, for people.")] = ""
    for_ms: (
        Annotated[int, Meta(ge=1, le=DELAY_MS_MAX, description="Milliseconds; default: no end.")]
        | None
    ) = None


class ResumeBody(Struct, forbid_unknown_fields=True, frozen=True):
    """End the pause of one scope; may be left out."""

    scope: ScopeField = "group"


_TYPES: dict[FieldKind, Any] = {
    FieldKind.INT: int,
    FieldKind.FLOAT: float,
    FieldKind.BOOL: bool,
    FieldKind.TEXT: str,
}
_WITH_UNIT: Any = int | str
_LIST: Any = list
_PATCH_DOC = """\
Settings to change at every sidecar; null takes a change back. Kinds and bounds are those of the
file (`docs/reference/configuration.md`).

Open leases keep their deadlines: a new `lease_ms` counts from the next grant or extend on."""


def changed(spec: Spec) -> tuple[str, Any, UnsetType]:
    """Describe a live setting as a member of the request, with the types that the file takes."""
    value = _TYPES[spec.item or spec.kind] if spec.unit is Unit.NONE else _WITH_UNIT
    value = _LIST[value] if spec.kind is FieldKind.LIST else value
    return spec.name, Annotated[value | None, Meta(description=spec.doc)] | UnsetType, UNSET


SettingsPatch = defstruct(
    "SettingsPatch",
    [changed(spec) for spec in LIVE.values()],
    namespace={"__doc__": _PATCH_DOC},
    forbid_unknown_fields=True,
    frozen=True,
)
"""Documents the request; `overlaid` reads it, as it names every mistake."""


class CancelBody(Struct, forbid_unknown_fields=True, frozen=True):
    """End a message that is in flight; may be left out."""

    then: Annotated[
        CancelTo, Meta(description="`dead`: to the dead-letter topic; `ack`: it is done.")
    ] = "dead"
    reason: Annotated[str, Meta(max_length=1000, description="Why, for people.")] = ""


class Draining(Struct, frozen=True):
    """The sidecar is on its way out."""

    draining: bool


class CancelledMessage(Struct, frozen=True):
    """What became of it: `acked` or `dead`."""

    id: str
    state: str


_PAUSE = BodyDecoder(PauseBody)
_CANCEL = BodyDecoder(CancelBody)
_RESUME = BodyDecoder(ResumeBody)


def _body(call: HandlerCall) -> bytes:
    if call.body:
        json_only(call)
    return call.body or b"{}"


async def drain(call: HandlerCall) -> Reply:
    """POST /v1/drain."""
    call.service.quiesce()
    return as_json({"draining": True})


async def pause(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/pause."""
    body = _PAUSE.decode(_body(call))
    engine = call.service.engine
    with calling(call.request.headers):
        view = await engine.pause(call.params[0], body.scope, body.reason, body.for_ms)
    return as_json(asdict(view))


async def resume(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/resume."""
    body = _RESUME.decode(_body(call))
    with calling(call.request.headers):
        view = await call.service.engine.resume(call.params[0], body.scope)
    return as_json(asdict(view))


async def cancel(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/messages/{topic}/{partition}/{offset}/cancel."""
    body = _CANCEL.decode(_body(call))
    message = message_of(call)
    done = await call.service.engine.cancel(call.params[0], message, body.then, body.reason)
    return as_json({"id": message, "state": done.done})


async def configure(call: HandlerCall) -> Reply:
    """PATCH /v1/subscriptions/{subscription}."""
    json_only(call)
    changes = _changes(call.body)
    try:
        with calling(call.request.headers):
            view = await call.service.engine.configure(call.params[0], changes)
    except MistakesError as error:
        wrong = [(pointer(each), each.reason) for each in error.mistakes]
        raise field_errors(wrong) from error
    return as_json(asdict(view))


def _changes(raw: bytes) -> dict[str, object]:
    """Read the body as an object of settings, without checking them. Raises BadBodyError."""
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except UNREADABLE as error:
        raise BadBodyError(f"Not a JSON object: {error}.") from error


_SUBSCRIPTION = "/v1/subscriptions/{subscription}"
_VIEW = (Content(JSON, SubscriptionView),)

CONTROL = (
    Route(
        "POST",
        "/v1/drain",
        "drain",
        "This sidecar delivers nothing more until its process ends, and gives its partitions to "
        "others. Settles work as before.",
        drain,
        "operate",
        (RouteAnswer(200, "The sidecar delivers nothing more.", (Content(JSON, Draining),)),),
        ("admin",),
    ),
    Route(
        "PATCH",
        _SUBSCRIPTION,
        "configure",
        "Change settings at every running sidecar. `null` restores the configured value.",
        configure,
        "operate",
        (RouteAnswer(200, "The subscription with the settings in force.", _VIEW),),
        ("admin",),
        body=(Content(JSON, SettingsPatch),),
        body_required=True,
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/messages/{{topic}}/{{partition}}/{{offset}}/cancel",
        "cancel_message",
        "End a message that is in flight. Its worker learns of it at its next extend.",
        cancel,
        "operate",
        (RouteAnswer(200, "The message is ended.", (Content(JSON, CancelledMessage),)),),
        ("admin",),
        body=(Content(JSON, CancelBody),),
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/pause",
        "pause",
        "Pause delivery, of the group or of this sidecar. Settles work as before.",
        pause,
        "operate",
        (RouteAnswer(200, "The subscription, paused.", _VIEW),),
        ("admin",),
        body=(Content(JSON, PauseBody),),
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/resume",
        "resume",
        "End the pause of this scope. Without a pause nothing changes.",
        resume,
        "operate",
        (RouteAnswer(200, "The subscription; `pauses` lists the pauses that remain.", _VIEW),),
        ("admin",),
        body=(Content(JSON, ResumeBody),),
        problems=(404, 503),
    ),
)
