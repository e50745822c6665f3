"""The table of routes: what the server serves, which handler serves it, and its documentation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from ackd.errors import MethodNotAllowedError, NotFoundError
from ackd.http.server.reply import Reply
from ackd.http.server.service import HandlerCall

Handler = Callable[[HandlerCall], Awaitable[Reply]]
Port = Literal["data", "admin", "health", "sqs"]
BOTH: tuple[Port, ...] = ("data", "admin")
PROBED: tuple[Port, ...] = ("admin", "health")


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter or header, as documented. `schema` is its JSON Schema."""

    name: str
    where: Literal["query", "header"]
    text: str
    schema: dict[str, object]


@dataclass(frozen=True, slots=True)
class Content:
    """One form of a body: its media type and the type (struct, dataclass) behind it."""

    media_type: str
    kind: object


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """A success. Problems need no entry: `Route.problems` names their statuses."""

    status: int
    text: str
    content: tuple[Content, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one address.

    `name` is the operationId and the metrics label. `body` empty means that no body is read. `open`
    routes answer without a token. `problems` are the statuses beyond the general ones.
    """

    method: str
    path: str
    name: str
    text: str
    handler: Handler
    tag: str
    answers: tuple[RouteAnswer, ...]
    ports: tuple[Port, ...] = ("data",)
    body: tuple[Content, ...] = ()
    body_required: bool = False
    params: tuple[Param, ...] = ()
    problems: tuple[int, ...] = ()
    open: bool = False

    @property
    def variables(self) -> list[str]:
        """Names of the variable parts of the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


@dataclass(slots=True)
class _RouteNode:
    fixed: dict[str, _RouteNode] = field(default_factory=dict)
    variable: _RouteNode | None = None
    methods: dict[str, Route] = field(default_factory=dict)


class Router:
    """Finds the route of a request; a fixed part of a path wins over a variable one."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _RouteNode()
        for route in routes:
            node = self._root
            for part in route.path.split("/")[1:]:
                if part.startswith("{"):
                    node.variable = node.variable or _RouteNode()
                    node = node.variable
                else:
                    node = node.fixed.setdefault(part, _RouteNode())
            node.methods[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, Sequence[str]]:
        """(route, variable parts). Raises NotFoundError, MethodNotAllowedError (fact `allow`)."""
        node = self._root
        found: list[str] = []
        for part in path.split("/")[1:]:
            below = node.fixed.get(part)
            if below is None:
                below = node.variable
                if below is None or not part:
                    raise NotFoundError(f"There is nothing at {path}.")
                found.append(unquote(part, errors="surrogateescape") if "%" in part else part)
            node = below
        route = node.methods.get(method)
        if route is None:
            if method == "HEAD" and "GET" in node.methods:
                return node.methods["GET"], found
            if not node.methods:
                raise NotFoundError(f"There is nothing at {path}.")
            allow = sorted(node.methods) + (["HEAD"] if "GET" in node.methods else [])
            raise MethodNotAllowedError(f"{path} takes {', '.join(allow)}.", allow=allow)
        return route, found

    def has(self, method: str, path: str) -> bool:
        """Whether there is a route for this method of this address."""
        try:
            self.find(method, path)
        except (NotFoundError, MethodNotAllowedError):
            return False
        return True
