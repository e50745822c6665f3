"""Dead letters over HTTP: list, peek, redrive, purge; their bodies, handlers and routes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from ackd.api.dead_letters import DeadFilter, DeadPage, DeadRequest, DeadView, DryRun, Kind, To
from ackd.api.past_deliveries import PastDelivery
from ackd.errors import UnconfirmedError
from ackd.http.formats import delivery_json
from ackd.http.formats.decode import BodyDecoder
from ackd.http.formats.model import HEADERS_MAX, TIME_MS_MAX, Base64Text
from ackd.http.formats.negotiation import JSON
from ackd.http.formats.problems import field_errors
from ackd.http.handlers.long_operations import begins, begun
from ackd.http.server.app import json_only
from ackd.http.server.reply import Reply
from ackd.http.server.router import BOTH, Content, Handler, Param, Route, RouteAnswer
from ackd.http.server.service import HandlerCall, number

IDS_MAX = 100
ID_PATTERN = "^[0-9]{1,18}-[0-9]{1,18}$"
COUNT_MAX = 1 << 40
RATE_MAX = 100_000
TEXT_MAX = 4096
PAGE_MAX = 1000
PAGE_DEFAULT = IDS_MAX

DeadId = Annotated[str, Meta(pattern=ID_PATTERN, description="As listed.", examples=["0-17"])]
Text = Annotated[str, Meta(max_length=TEXT_MAX)]
TimeMs = Annotated[int, Meta(ge=0, le=TIME_MS_MAX, description="Unix time in milliseconds.")]
Name = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]


class Filter(Struct, forbid_unknown_fields=True, frozen=True):
    """Which dead letters; all that is given must hold. `topic` and `key` must be equal, `reason`
    and `error` (the last one) contained; `after_ms` <= given up < `before_ms`.
    """

    topic: Text | None = None
    key: Text | None = None
    reason: Text | None = None
    error: Text | None = None
    after_ms: TimeMs | None = None
    before_ms: TimeMs | None = None

    def plain(self) -> DeadFilter:
        """Without what every dead letter fulfils: such a filter takes all, and wants `confirm`."""
        reason, error, after_ms = self.reason or None, self.error or None, self.after_ms or None
        return DeadFilter(self.topic, self.key, reason, error, after_ms, self.before_ms)


class _Selection(Struct, forbid_unknown_fields=True, frozen=True):
    ids: (
        Annotated[
            list[DeadId],
            Meta(min_length=1, max_length=IDS_MAX, description="Exactly these; no filter then."),
        ]
        | None
    ) = None
    filter: Filter | None = None
    max: (
        Annotated[int, Meta(ge=1, le=COUNT_MAX, description="The most dead letters to take.")]
        | None
    ) = None
    dry_run: Annotated[bool, Meta(description="Only say what would happen.")] = False
    rate_per_s: Annotated[int, Meta(ge=1, le=RATE_MAX, description="The most a second.")] | None = (
        None
    )
    confirm: Annotated[
        Text,
        Meta(
            description="The subscription's name. A purge needs it, and a redrive of everything: "
            "without `ids` and `filter`, and with no `max`, or one that is not below what is "
            "there. A dry run does not."
        ),
    ] = ""


class RedriveBody(_Selection, frozen=True):
    """Dead letters to deliver again. Without `ids`, `filter` and `max`: all of them."""

    to: Annotated[
        Literal["group", "origin"],
        Meta(description="`group`: this group only. `origin`: their topic, so every group of it."),
    ] = "group"
    set_headers: Annotated[
        dict[Name, Text], Meta(max_length=HEADERS_MAX, description="In place of those headers.")
    ] = {}
    remove_headers: Annotated[
        list[Name], Meta(max_length=HEADERS_MAX, description="Without these headers.")
    ] = []
    unsigned: Annotated[
        bool,
        Meta(description="Also those that ackd did not sign, and records that it put aside."),
    ] = False

    def request(self) -> DeadRequest:
        return DeadRequest(
            Kind.REDRIVE,
            ids=tuple(dict.fromkeys(self.ids or ())),
            filter=(self.filter or Filter()).plain(),
            max=self.max,
            dry_run=self.dry_run,
            rate_per_s=self.rate_per_s,
            to=To(self.to),
            confirm=self.confirm,
            set_headers=tuple(self.set_headers.items()),
            remove_headers=tuple(self.remove_headers),
            unsigned=self.unsigned,
        )


class PurgeBody(_Selection, frozen=True):
    """Dead letters to forget. Without `ids` and `filter`: all of them."""

    def request(self) -> DeadRequest:
        return DeadRequest(
            Kind.PURGE,
            ids=tuple(dict.fromkeys(self.ids or ())),
            filter=(self.filter or Filter()).plain(),
            max=self.max,
            dry_run=self.dry_run,
            rate_per_s=self.rate_per_s,
            confirm=self.confirm,
        )


@dataclass(slots=True, kw_only=True)
class DeadMessage(DeadView):
    """A dead letter with its content. Exactly one of `json`, `text`, `base64` holds the value.
    `history`: its deliveries, the oldest first.
    """

    key: str | Base64Text | None
    headers: list[tuple[str, str | Base64Text | None]]
    history: list[PastDelivery]
    tombstone: bool | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET
    text: str | UnsetType | None = UNSET
    base64: str | UnsetType | None = UNSET


_REDRIVE = BodyDecoder(RedriveBody)
_PURGE = BodyDecoder(PurgeBody)


async def page(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/dead."""
    fields = call.query("cursor", "max")
    most = number(fields, "max", PAGE_DEFAULT, 1, PAGE_MAX)
    found = await call.service.engine.dead.page(call.params[0], fields.get("cursor"), most)
    return Reply(orjson.dumps(found))


async def peek(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/dead/{dead}."""
    call.query()
    name = call.params[0]
    letter = await call.service.engine.dead.peek(name, call.params[1])
    members = asdict(letter.view) | {
        "key": delivery_json.text_or_base64(letter.record.key),
        "headers": [
            (delivery_json.safe(header), delivery_json.text_or_base64(value))
            for header, value in letter.headers
        ],
        "history": letter.history,
    }
    value = call.service.encoder(name).value(letter.record.value)
    return Reply(orjson.dumps(members)[:-1] + b"," + value)


async def redrive(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/dead:redrive."""
    json_only(call)
    return await _begin(call, _REDRIVE.decode(call.body))


async def purge(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/dead:purge."""
    json_only(call)
    return await _begin(call, _PURGE.decode(call.body))


async def _begin(call: HandlerCall, body: RedriveBody | PurgeBody) -> Reply:
    if body.ids and (body.filter is not None or body.max is not None):
        raise field_errors([("/ids", "Either ids, or filter and max.")])
    try:
        return begun(await call.service.engine.dead.begin(call.params[0], body.request()))
    except UnconfirmedError as error:
        raise field_errors([("/confirm", error.detail)]) from error


_BASE = "/v1/subscriptions/{subscription}/dead"


def _begins(verb: str, text: str, handler: Handler, body: object) -> Route:
    path, name = f"{_BASE}:{verb}", f"dead_{verb}"
    return begins(path, name, text, handler, tag="dead", plan=DryRun, body=body)


DEAD_ROUTES = (
    Route(
        "GET",
        _BASE,
        "dead_list",
        "List dead letters, partition by partition, the oldest first.",
        page,
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
                f"How many; default {PAGE_DEFAULT}.",
                {"type": "integer", "minimum": 1, "maximum": PAGE_MAX},
            ),
        ),
        problems=(404, 429, 503),
    ),
    Route(
        "GET",
        f"{_BASE}/{{dead}}",
        "dead_peek",
        "Read one dead letter with its content. Nothing changes.",
        peek,
        "dead",
        (RouteAnswer(200, "The dead letter.", (Content(JSON, DeadMessage),)),),
        BOTH,
        problems=(404, 429, 503),
    ),
    _begins(
        "redrive",
        "Deliver dead letters again. Starts an operation.",
        redrive,
        RedriveBody,
    ),
    _begins(
        "purge",
        "Drop dead letters: ackd lists them no more. Starts an operation.",
        purge,
        PurgeBody,
    ),
)
