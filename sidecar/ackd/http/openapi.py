"""The OpenAPI 3.1 document, made from the table of routes and the structs behind it.

Each port serves the part that it answers; `ackd openapi` prints the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import is_dataclass
from http import HTTPStatus
from typing import cast

import msgspec
from msgspec import Struct

from ackd import __version__
from ackd.http.formats.model import LEASE_CHARS_MAX, Problem
from ackd.http.formats.problems import MEDIA_TYPE
from ackd.http.handlers.dead_letters import ID_PATTERN
from ackd.http.server.router import Content, Param, Port, Route, RouteAnswer

Json = dict[str, object]

_REF = "#/components/schemas/{name}"
_TAGS = {
    "receive": "Lease messages.",
    "settle": "End or change leases: ack, retry, extend, dead, release.",
    "publish": "Put messages into topics.",
    "dead": "Dead letters: list them, deliver them again, drop them.",
    "progress": "How far a group is: export and import it, move it.",
    "look": "See where things stand; never changes anything.",
    "operate": "Change a running subscription (admin port).",
    "health": "For probes and scrapers (admin port).",
    "documents": "What this sidecar says about itself.",
}
_VARIABLES: dict[str, Json] = {
    "subscription": {"type": "string", "minLength": 1},
    "topic": {"type": "string", "minLength": 1},
    "partition": {"type": "integer", "minimum": 0},
    "offset": {"type": "integer", "minimum": 0},
    "lease": {"type": "string", "minLength": 1, "maxLength": LEASE_CHARS_MAX},
    "dead": {"type": "string", "pattern": ID_PATTERN},
    "operation": {"type": "string", "minLength": 1},
    "broker": {"type": "string", "minLength": 1},
    "number": {"type": "integer", "minimum": 1},
    "problem": {"type": "string", "pattern": "^[a-z-]+$"},
}
_BODY_PROBLEMS = (400, 408, 413, 415, 429)
_GENERAL_PROBLEMS = (421, 422, 431)
_GUARDED_PROBLEMS = (401, 403)


def document(routes: Iterable[Route], port: Port | None = None) -> Json:
    """Make the document of the routes that one port has, or (None) of all."""
    return build([route for route in routes if port is None or port in route.ports])


def build(routes: Iterable[Route]) -> Json:
    """Make the document of these routes."""
    routes = tuple(routes)
    kinds = _kinds(routes)
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF, schema_hook=_anything)
    paths: dict[str, Json] = {}
    for route in routes:
        # Both ports have an `/openapi.json`; the first one stands for it in the joint document.
        paths.setdefault(route.path, {}).setdefault(route.method.lower(), _operation(route))
    used = {route.tag for route in routes}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ackd",
            "version": __version__,
            "summary": "Lease messages over HTTP, settle each one by itself.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": name, "description": text} for name, text in _TAGS.items() if name in used
        ],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": cast("Json", schemas),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _anything(kind: type) -> Json:
    """Make the schema of `object` in a dataclass: any JSON value."""
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError(kind)


def _kinds(routes: Iterable[Route]) -> list[type]:
    found: dict[type, None] = {Problem: None}
    for route in routes:
        contents = [*route.body, *(each for answer in route.answers for each in answer.content)]
        for content in contents:
            if _named(content.kind):
                found[cast("type", content.kind)] = None
    return list(found)


def _named(kind: object) -> bool:
    return isinstance(kind, type) and (issubclass(kind, Struct) or is_dataclass(kind))


def _operation(route: Route) -> Json:
    operation: Json = {
        "operationId": route.name,
        "summary": route.text,
        "tags": [route.tag],
        "x-ackd-ports": list(route.ports),
        "responses": _responses(route),
    }
    if route.open:
        operation["security"] = []
    parameters = [_variable(name) for name in route.variables]
    parameters += [_parameter(param) for param in route.params]
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {each.media_type: _media(each) for each in route.body},
        }
    return operation


def _variable(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": _VARIABLES[name]}


def _parameter(param: Param) -> Json:
    return {
        "name": param.name,
        "in": param.where,
        "required": False,
        "description": param.text,
        "schema": param.schema,
    }


def _media(content: Content) -> Json:
    kind = content.kind
    if _named(kind):
        return {"schema": {"$ref": _REF.format(name=cast("type", kind).__name__)}}
    if kind is bytes:
        return {}
    if kind is list:
        return {"schema": {"type": "array", "items": {"type": "object"}}}
    return {"schema": {"type": "string" if kind is str else "object"}}


def problem_statuses(route: Route) -> list[int]:
    """Return every status with which this route may answer a problem document."""
    found = {*route.problems, *_GENERAL_PROBLEMS}
    if not route.open:
        found.update(_GUARDED_PROBLEMS)
    if route.body:
        found.update(_BODY_PROBLEMS)
    return sorted(found)


def _responses(route: Route) -> Json:
    responses: Json = {str(answer.status): _answer(answer) for answer in route.answers}
    problem: Json = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}}
    for status in problem_statuses(route):
        text = re.sub(r"\s+", " ", HTTPStatus(status).phrase)
        responses.setdefault(str(status), {"description": f"{text}.", "content": problem})
    responses["default"] = {"description": "Any other problem.", "content": problem}
    return responses


def _answer(answer: RouteAnswer) -> Json:
    described: Json = {"description": answer.text}
    if answer.content:
        described["content"] = {each.media_type: _media(each) for each in answer.content}
    if answer.headers:
        described["headers"] = {name: {"schema": {"type": "string"}} for name in answer.headers}
    return described
