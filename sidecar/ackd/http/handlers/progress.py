"""A group's progress over HTTP: export, import, seek; their bodies, handlers and routes."""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from msgspec import Meta, Struct

from ackd.api.progress import Position, ProgressExport, SeekPlan, SeekRequest, SeekTo
from ackd.http.formats.decode import BodyDecoder
from ackd.http.formats.model import TIME_MS_MAX
from ackd.http.formats.negotiation import JSON
from ackd.http.formats.problems import field_errors
from ackd.http.handlers.long_operations import begins, begun
from ackd.http.server.app import json_only
from ackd.http.server.reply import Reply
from ackd.http.server.router import BOTH, Content, Handler, Route, RouteAnswer
from ackd.http.server.service import HandlerCall

OFFSET_MAX = 1 << 53
POSITIONS_MAX = 10_000
RANGES_MAX = 100_000
NUMBER_MAX = 1 << 31
TEXT_MAX = 1000

Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]
Ranges = Annotated[
    list[tuple[Offset, Offset]],
    Meta(max_length=RANGES_MAX, description="[start, end) above `offset` that are finished."),
]


class PositionBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Where one partition goes on."""

    topic: Name
    partition: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    offset: Offset
    finished: Ranges = []

    def plain(self) -> Position:
        return Position(self.topic, self.partition, self.offset, tuple(self.finished))


class Where(Struct, forbid_unknown_fields=True, frozen=True):
    """Either `time` (the first message with this Unix time in ms or a later one) or `positions`
    (other partitions stay as they are).
    """

    time: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None
    positions: (
        Annotated[list[PositionBody], Meta(min_length=1, max_length=POSITIONS_MAX)] | None
    ) = None


class SeekBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Where the group goes on. `before_reset`: where it was before its progress was last moved."""

    to: Literal["earliest", "latest", "before_reset"] | Where
    dry_run: Annotated[bool, Meta(description="Only say what would happen.")] = False

    def request(self) -> SeekRequest:
        """As the engine takes it; the body was checked."""
        if isinstance(self.to, str):
            return SeekRequest(SeekTo(self.to), dry_run=self.dry_run)
        if self.to.positions is None:
            return SeekRequest(SeekTo.TIME, self.to.time, dry_run=self.dry_run)
        positions = tuple(each.plain() for each in self.to.positions)
        return SeekRequest(SeekTo.POSITIONS, positions=positions, dry_run=self.dry_run)


class ImportedPartition(Struct, forbid_unknown_fields=True, frozen=True):
    """One partition of an export. With `topic_id`: of that very topic only."""

    topic: Name
    partition: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    offset: Offset
    finished: Ranges = []
    topic_id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")] | None = None
    epoch: Annotated[int, Meta(ge=0, le=NUMBER_MAX * 2)] | None = None

    def plain(self) -> Position:
        finished = tuple(self.finished)
        return Position(self.topic, self.partition, self.offset, finished, self.topic_id)


class ImportBody(Struct, forbid_unknown_fields=True, frozen=True):
    """An export as it was answered, and how to take it. Other partitions stay as they are.

    `increase_only`: no partition goes back, and what is finished stays so.
    """

    partitions: Annotated[list[ImportedPartition], Meta(min_length=1, max_length=POSITIONS_MAX)]
    increase_only: bool = True
    dry_run: Annotated[bool, Meta(description="Only say what would happen.")] = False
    version: Literal[1] = 1
    subscription: Annotated[str, Meta(max_length=TEXT_MAX)] | None = None
    cluster: Annotated[str, Meta(max_length=TEXT_MAX)] | None = None
    exported_ms: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)] | None = None

    def request(self) -> SeekRequest:
        return SeekRequest(
            SeekTo.POSITIONS,
            positions=tuple(each.plain() for each in self.partitions),
            increase_only=self.increase_only,
            imported=True,
            dry_run=self.dry_run,
        )


_SEEK = BodyDecoder(SeekBody)
_IMPORT = BodyDecoder(ImportBody)


async def seek(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/seek."""
    json_only(call)
    body = _SEEK.decode(call.body)
    if isinstance(body.to, Where) and (body.to.time is None) is (body.to.positions is None):
        raise field_errors([("/to", "Either time or positions.")])
    return await _start(call, body.request(), "/to/positions")


async def export(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/progress."""
    call.query()
    return Reply(orjson.dumps(await call.service.engine.progress.export(call.params[0])))


async def take_in(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/progress:import."""
    json_only(call)
    return await _start(call, _IMPORT.decode(call.body).request(), "/partitions")


async def _start(call: HandlerCall, request: SeekRequest, at: str) -> Reply:
    faults: list[tuple[str, str]] = []
    seen: set[tuple[str, int]] = set()
    for index, each in enumerate(request.positions):
        if (each.topic, each.partition) in seen:
            faults.append((f"{at}/{index}", "This partition is named twice."))
        seen.add((each.topic, each.partition))
        last = each.offset
        for number, (start, end) in enumerate(each.finished):
            if not last <= start < end:
                where = f"{at}/{index}/finished/{number}"
                faults.append((where, "Ranges go up, from the offset on, and are not empty."))
                break
            last = end
    if faults:
        raise field_errors(faults)
    return begun(await call.service.engine.progress.seek(call.params[0], request))


_BASE = "/v1/subscriptions/{subscription}"


def _begins(path: str, name: str, text: str, handler: Handler, body: object) -> Route:
    path = f"{_BASE}/{path}"
    return begins(path, name, text, handler, tag="progress", plan=SeekPlan, body=body)


PROGRESS_ROUTES = (
    Route(
        "GET",
        f"{_BASE}/progress",
        "progress_export",
        "Export the group's progress, in a form that can be imported.",
        export,
        "progress",
        (
            RouteAnswer(
                200, "One entry per partition that has progress.", (Content(JSON, ProgressExport),)
            ),
        ),
        BOTH,
        problems=(404, 429, 503),
    ),
    _begins(
        "progress:import",
        "progress_import",
        "Import exported progress. Starts an operation; pause the group first.",
        take_in,
        ImportBody,
    ),
    _begins(
        "seek",
        "seek",
        "Move the group to other positions. Starts an operation; pause the group first.",
        seek,
        SeekBody,
    ),
)
