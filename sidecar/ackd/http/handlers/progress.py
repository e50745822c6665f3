"""A group's progress over HTTP: export, import, seek."""

from __future__ import annotations

import orjson

from ackd.api.dead_letters import OperationView
from ackd.api.progress import SeekRequest
from ackd.http.formats.decode import BodyDecoder
from ackd.http.formats.problems import field_errors
from ackd.http.handlers.progress_model import ImportBody, SeekBody, Where
from ackd.http.server.app import json_only
from ackd.http.server.reply import Reply
from ackd.http.server.service import HandlerCall

_SEEK = BodyDecoder(SeekBody)
_IMPORT = BodyDecoder(ImportBody)


async def seek(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/seek."""
    json_only(call)
    body = _SEEK.decode(call.body)
    if isinstance(body.to, Where) and (body.to.time is None) is (body.to.positions is None):
        raise field_errors([("/to", "Either time or positions.")])
    return await _begin(call, body.request(), "/to/positions")


async def export(call: HandlerCall) -> Reply:
    """GET /v1/subscriptions/{subscription}/progress."""
    call.query()
    return Reply(orjson.dumps(await call.service.engine.progress.export(call.params[0])))


async def take_in(call: HandlerCall) -> Reply:
    """POST /v1/subscriptions/{subscription}/progress:import."""
    json_only(call)
    return await _begin(call, _IMPORT.decode(call.body).request(), "/partitions")


async def _begin(call: HandlerCall, request: SeekRequest, at: str) -> Reply:
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
    found = await call.service.engine.progress.seek(call.params[0], request)
    if isinstance(found, OperationView):
        location = ("Location", f"/v1/operations/{found.id}")
        return Reply(orjson.dumps(found), status=202, headers=(location,))
    return Reply(orjson.dumps(found))
