"""The routes for a group's progress, a part of the table in `routes`."""

from __future__ import annotations

from ackd.api.progress import ProgressExport, SeekPlan
from ackd.http.formats.negotiation import JSON
from ackd.http.handlers import progress
from ackd.http.handlers.operation_route import begins
from ackd.http.handlers.progress_model import ImportBody, SeekBody
from ackd.http.server.router import BOTH, Content, Handler, Route, RouteAnswer

_BASE = "/v1/subscriptions/{subscription}"


def _begin(path: str, name: str, text: str, handler: Handler, body: object) -> Route:
    path = f"{_BASE}/{path}"
    return begins(path, name, text, handler, tag="progress", plan=SeekPlan, body=body)


PROGRESS_ROUTES = (
    Route(
        "GET",
        f"{_BASE}/progress",
        "progress_export",
        "Export the group's progress, in a form that can be imported.",
        progress.export,
        "progress",
        (
            RouteAnswer(
                200, "One entry per partition that has progress.", (Content(JSON, ProgressExport),)
            ),
        ),
        BOTH,
        problems=(404, 429, 503),
    ),
    _begin(
        "progress:import",
        "progress_import",
        "Import exported progress. Starts an operation; pause the group first.",
        progress.take_in,
        ImportBody,
    ),
    _begin(
        "seek",
        "seek",
        "Move the group to other positions. Starts an operation; pause the group first.",
        progress.seek,
        SeekBody,
    ),
)
