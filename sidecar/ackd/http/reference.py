"""`docs/reference/routes.md`: every route of both ports, from the table that serves them."""

from __future__ import annotations

from typing import cast

from ackd.http.openapi import problem_statuses
from ackd.http.routes import ROUTES
from ackd.http.server.router import Content, Route

_PREFACE = """\
This page is made from the source: `ackd docs routes`. Schemas are in the OpenAPI document: `ackd
openapi`, or `/openapi.json` of either port. Errors are problem documents, see
[problems](problems.md); each of these statuses may come with any route: 404 and 405 (wrong address
or method), 500 (a bug), 503 (starting). [Receive and settle](../guides/consume.md) has examples."""


def page() -> str:
    """Render the Markdown page of all routes."""
    lines = ["# Routes", "", _PREFACE]
    for tag in dict.fromkeys(route.tag for route in ROUTES):
        lines += ["", f"## {tag.capitalize()}"]
        for route in ROUTES:
            if route.tag == tag:
                lines += ["", *_route(route)]
    return "\n".join([*lines, ""])


def _route(route: Route) -> list[str]:
    guard = "; no token needed" if route.open else ""
    lines = [
        f"### `{route.method} {route.path}`",
        "",
        f"{route.text} Port: {' and '.join(route.ports)}{guard}.",
        "",
    ]
    if route.body:
        needed = "required" if route.body_required else "optional"
        lines.append(f"- body ({needed}): {_contents(route.body)}")
    lines += [f"- {each.where} `{each.name}`: {each.text}" for each in route.params]
    for answer in route.answers:
        forms = f" {_contents(answer.content)}" if answer.content else ""
        lines.append(f"- {answer.status}: {answer.text}{forms}")
    answered = {answer.status for answer in route.answers}
    problems = [str(status) for status in problem_statuses(route) if status not in answered]
    lines.append(f"- problems: {', '.join(problems)}")
    return lines


def _contents(contents: tuple[Content, ...]) -> str:
    return ", ".join(
        f"`{each.media_type}`" + (f" ({name})" if (name := _name(each.kind)) else "")
        for each in contents
    )


def _name(kind: object) -> str:
    if kind in {bytes, str, dict, list}:
        return ""
    return cast("type", kind).__name__
