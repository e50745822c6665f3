"""One port: from a parsed request to an answer. Routing, who may call, bodies, errors, counting.

The table of routes is our own (it is also the documentation), and the way of a request is short.

A port without a token lets no web page in, although any page in a browser on this machine can reach
a loopback address. Three headers betray a page:

- `Origin`: browsers send it with everything that is not a plain GET or HEAD.
- `Sec-Fetch-Site`: browsers send it to loopback addresses with every request, even for an image.
- `Host`: it has the page's own name if somebody turned that name to this address (DNS rebinding).
  Such a name is never an IP address, so ackd lets everybody pass who calls an address, as probes
  and scrapers do.

A stream takes leases by a GET. It needs a header that a page can only send with the server's
consent (a preflight request, which ackd never grants), whatever headers the browser leaves out.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

from ackd.errors import (
    AckdError,
    BodyTooLargeError,
    ForbiddenError,
    ForeignHostError,
    MethodNotAllowedError,
    NotFoundError,
    PressureError,
    RequestTimeoutError,
    StartingError,
    UnsupportedMediaTypeError,
)
from ackd.http.formats import problems
from ackd.http.formats.problems import field_errors
from ackd.http.server.auth import TokenFile
from ackd.http.server.body import Body
from ackd.http.server.limits import BODY_FREE_BYTES, Limits
from ackd.http.server.reply import Reply, failure
from ackd.http.server.request import Request
from ackd.http.server.router import Port, Route, Router
from ackd.http.server.server import LOG, Server
from ackd.http.server.service import HandlerCall, Service

# After these the rest of the request may still be on its way; the connection can't go on.
_CLOSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})

# What these answer, a page that links to it may show (it can't read it); they change nothing.
OPEN_TO_PAGES = frozenset({"health", "documents"})
SITES = frozenset({"none", "same-origin"})
"""Requests for an address that somebody typed, and requests of pages that this port served."""
NAMES_KEPT = 64
SETTINGS_OF_PORTS: Mapping[Port, str] = {
    "data": "server.listen",
    "admin": "server.admin_listen",
}
"""The setting with each port's address. Everything on the health port is on the admin port, too."""
STREAM_HEADER = "Ackd-Worker"


class Pages:
    """Refuses web pages at one port without a token. `names`: allowed host names, None = any."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self._names = None if names is None else frozenset(each.lower() for each in names)
        self._passed: set[str] = set()

    def check_host(self, request: Request) -> None:
        """Refuse a `Host` that is not a name of this port. Raises ForeignHostError."""
        if self._names is None:
            return
        host = request.headers.get("Host")
        if host is None or host in self._passed:
            return
        name = _name(host)
        if not self._ours(name):
            raise ForeignHostError(
                f"Nobody calls this port {name[:100]!r}; `server.hosts` lists further names."
            )
        if len(self._passed) < NAMES_KEPT:
            self._passed.add(host)

    def _ours(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or name in (self._names or ()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def check_page(self, request: Request) -> None:
        """Refuse a request of a web page from another site. Raises ForbiddenError."""
        headers = request.headers
        if "Origin" in headers:
            raise ForbiddenError(f"A web page of {headers['Origin']} called.")
        site = headers.get("Sec-Fetch-Site")
        if site is not None and site not in SITES:
            raise ForbiddenError(f"A web page of another place called (Sec-Fetch-Site: {site}).")

    def check_stream(self, request: Request) -> None:
        if not request.headers.get(STREAM_HEADER):
            why = (
                "Where there is no token a stream has to name its worker (any name does): "
                "a web page can't."
            )
            raise field_errors([(f"header:{STREAM_HEADER}", why)])


def _name(host: str) -> str:
    """Return the name or address in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


class App:
    """Answers all requests of one port: admits them, finds the route, bounds the body, counts."""

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
        # Refuses web pages if there is no token. The listener sets the host names.
        self.pages = Pages()
        self.router = Router(route for route in routes if port in route.ports)
        self._others = {
            other: Router(route for route in routes if other in route.ports)
            for other in SETTINGS_OF_PORTS
            if other != port
        }
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
            route, params = self._find(request.method, path)
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
            LOG.exception(
                "a request failed on a bug of ackd's, please report it: %s %s",
                request.method,
                route.name if route else "-",
            )
            reply = failure(problems.bug())
        finally:
            if call is not None and call.held:
                self.limits.bodies.give(call.held)
        self._count(request.method, route, reply.status, loop.time() - start_s)
        return reply

    def _find(self, method: str, path: str) -> tuple[Route, Sequence[str]]:
        """Find the route. Raises NotFoundError, MethodNotAllowedError; they name the port that
        serves this method of the address, if another one does.
        """
        try:
            return self.router.find(method, path)
        except (NotFoundError, MethodNotAllowedError) as error:
            for port, router in self._others.items():
                if router.has(method, path):
                    setting = SETTINGS_OF_PORTS[port]
                    error.detail += (
                        f" The {port} port (setting `{setting}`) serves {method} {path};"
                        f" this is the {self.port} port."
                    )
                    error.facts["port"] = port
            raise

    def _admit(self, request: Request, route: Route) -> None:
        """Check that the caller may use this route now. Raises UnauthorizedError, ForbiddenError,
        StartingError, and for a stream BadParameterError.
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
        """Reserve room for the announced length before the server reads the body."""
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
        """Read the body. The length of a chunked body shows at its end, so its room grows."""
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
        """Count a request in a plain dictionary, from which a scrape fills the metrics."""
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
    """Refuse compressed bodies: a small one could become huge. Raises UnsupportedMediaTypeError."""
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
