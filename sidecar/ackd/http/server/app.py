"""One port: from a parsed request to an answer. Routing, tokens, bodies, errors, counting.

The table of routes is our own (it is also the documentation), and the way of a request is short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

from ackd.errors import (
    AckdError,
    BodyTooLargeError,
    MethodNotAllowedError,
    PressureError,
    RequestTimeoutError,
    StartingError,
    UnsupportedMediaTypeError,
)
from ackd.http.formats import problems
from ackd.http.server.auth import TokenFile
from ackd.http.server.body import Body
from ackd.http.server.limits import BODY_FREE_BYTES, Limits
from ackd.http.server.pages import Pages
from ackd.http.server.reply import Reply, failure
from ackd.http.server.request import Request
from ackd.http.server.router import Port, Route, Router
from ackd.http.server.server import LOG, Server
from ackd.http.server.service import HandlerCall, Service

# After these the rest of the request may still be on its way; the connection can't go on.
_CLOSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})

# What these answer, a page that links to it may show (it can't read it); they change nothing.
OPEN_TO_PAGES = frozenset({"health", "documents"})


class App:
    """Everything behind one port."""

    def __init__(
        self,
        port: Port,
        service: Service,
        token: TokenFile,
        limits: Limits,
        routes: Sequence[Route],
    ) -> None:
        self.port = port
        self.service = service
        self.token = token
        self.limits = limits
        # Without a token: who is refused for being a web page. The listener tells the names.
        self.pages = Pages()
        self.router = Router(route for route in routes if port in route.ports)
        self.server = Server(self.handle, limits)
        self._counted: dict[tuple[str, str, int], int] = {}
        service.metrics.before_scrape(self._fill_metrics)

    async def handle(self, request: Request) -> Reply:
        """Answer a request; never raises but for cancellation."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        route: Route | None = None
        call: HandlerCall | None = None
        try:
            if self.token.open:
                self.pages.check_host(request)
            path, _, query = request.path.partition("?")
            route, params = self.router.find(request.method, path)
            if not route.open:
                self._admit(request, route)
            call = HandlerCall(self.service, request, params, query)
            if route.body:
                if request.body is None:
                    call.body = self._whole(call, request.whole)
                else:
                    self._hold(call)
                    call.body = await self._read(call, request.body)
            reply = await route.handler(call)
        except AckdError as error:
            reply = self._failed(error)
        except Exception:  # noqa: BLE001  the last line: a bug is logged and answered 500
            LOG.exception("request failed: %s %s", request.method, route.name if route else "-")
            reply = failure(problems.bug())
        finally:
            if call is not None and call.held:
                self.limits.bodies.give(call.held)
        self._count(request.method, route, reply.status, loop.time() - start_s)
        return reply

    def _admit(self, request: Request, route: Route) -> None:
        """Who may call, and when. Raises UnauthorizedError, ForbiddenError, StartingError, and
        BadParameterError of a stream.
        """
        if self.service.starting:
            raise StartingError
        if not self.token.open:
            self.token.check(request.headers.get("Authorization"))
        elif route.tag not in OPEN_TO_PAGES:
            self.pages.check_page(request)
            if route.name == "stream":
                self.pages.check_stream(request)

    def _failed(self, error: AckdError) -> Reply:
        allow = ""
        if isinstance(error, MethodNotAllowedError):
            names = error.facts.get("allow")
            allow = ", ".join(names) if isinstance(names, list) else ""
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            LOG.debug("answered %d: %s", error.status, error)
        return failure(error, close=error.status in _CLOSING, allow=allow)

    # --- bodies -----------------------------------------------------------------------------------

    def _whole(self, call: HandlerCall, body: bytes) -> bytes:
        if body:
            _as_is(call.request)
        if len(body) > self.limits.body_bytes_max:
            raise self._too_large()
        return body

    def _too_large(self) -> BodyTooLargeError:
        limit = self.limits.body_bytes_max
        return BodyTooLargeError(f"A body may have {limit} bytes here.", bytes_max=limit)

    def _hold(self, call: HandlerCall) -> None:
        """Look at the announced length before a byte of it is read, and keep room for it."""
        _as_is(call.request)
        size = call.request.length
        if size is None or size <= BODY_FREE_BYTES:
            return
        if size > self.limits.body_bytes_max:
            raise self._too_large()
        self._hold_more(call, size)

    def _hold_more(self, call: HandlerCall, size: int) -> None:
        if not self.limits.bodies.take(size - call.held):
            raise PressureError("Too many large bodies at once.")
        call.held = size

    async def _read(self, call: HandlerCall, body: Body) -> bytes:
        """The body. A chunked one has no length before its end, so its room grows with it."""
        request = call.request
        if request.headers.get("Expect", "").lower() == "100-continue":
            transport = request.connection.transport
            if transport is not None and not transport.is_closing():
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.body_timeout_s):
                while piece := await body.some():
                    size += len(piece)
                    if size > self.limits.body_bytes_max:
                        raise self._too_large()
                    if size > max(BODY_FREE_BYTES, call.held):
                        self._hold_more(call, size)
                    pieces.append(piece)
        except TimeoutError:
            raise RequestTimeoutError("The body did not arrive in time.") from None
        return b"".join(pieces)

    # --- counting ---------------------------------------------------------------------------------

    def _count(self, method: str, route: Route | None, status: int, seconds: float) -> None:
        """Counts are kept in a plain dictionary and handed to Prometheus when it asks."""
        name = route.path if route is not None else "-"
        key = (method if route is not None else "-", name, status)
        self._counted[key] = self._counted.get(key, 0) + 1
        self.service.metrics.http_seconds.at(name).observe(seconds)

    def _fill_metrics(self) -> None:
        metrics = self.service.metrics
        counted, self._counted = self._counted, {}
        for (method, name, status), times in counted.items():
            metrics.http_requests.at(self.port, method, name, str(status)).inc(times)
        metrics.http_connections.at(self.port).set(self.server.open)
        if self.server.refused:
            metrics.http_refused.at(self.port).inc(self.server.refused)
            self.server.refused = 0


def _as_is(request: Request) -> None:
    """Nothing is unpacked: a small body could become huge. Raises UnsupportedMediaTypeError."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaTypeError("Bodies are read as they are: no Content-Encoding.")


def json_only(call: HandlerCall) -> None:
    """Refuse a body that does not say that it is JSON. Raises UnsupportedMediaTypeError."""
    kind = call.request.headers.get("Content-Type")
    if kind is None or kind == "application/json":
        return
    media = kind.partition(";")[0].strip().lower()
    if media != "application/json":
        raise UnsupportedMediaTypeError(
            f"This address reads application/json, not {media} (curl: use --json)."
        )
