"""The state that all handlers share (`Service`), and one request of a handler (`HandlerCall`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from urllib.parse import parse_qsl

from ackd.api.messages import Engine, Received, SettleItem, SettleVerb, Status
from ackd.config.schema import ServerSettings
from ackd.errors import AckdError
from ackd.http.formats.delivery_json import DeliveryEncoder
from ackd.http.formats.problems import field_errors
from ackd.http.server.limits import Limits
from ackd.http.server.request import Request
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.http")

Spawn = Callable[[Coroutine[None, None, None]], object]

WORKER_CHARS_MAX = 100
_QUERY_FIELDS_MAX = 20
_DIGITS_MAX = 15


class Service:
    """The engine and what HTTP adds to it; one per process, shared by both ports.

    `document` gives the OpenAPI document of a port; whoever serves the routes puts it in. `spawn`
    runs something that must outlive its request, in a task that somebody holds.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ServerSettings,
        metrics: Metrics,
        *,
        spawn: Spawn,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.metrics = metrics
        self.starting = False
        self.draining = False
        self.document: Callable[[str], bytes] = lambda _port: b"{}"
        self.quiesce: Callable[[], None] = self._quiesce
        self._spawn = spawn
        self._encoders: dict[str, DeliveryEncoder] = {}

    def _quiesce(self) -> None:
        """Stop receiving; whoever serves the routes adds what else has to stop."""
        self.draining = True

    def encoder(self, subscription: str) -> DeliveryEncoder:
        """How this subscription's messages are written. Raises UnknownSubscriptionError."""
        known = self._encoders.get(subscription)
        if known is None:
            known = DeliveryEncoder(self.engine.subscription(subscription).payload)
            self._encoders[subscription] = known
        return known

    def abandon(self, received: Received) -> None:
        """Release the leases of an answer if the client got no byte of it (R21)."""
        if received.messages:
            self._spawn(self._abandon(received))

    def release(self, leases: Sequence[str]) -> None:
        """Release, uncounted, the leases of a client that has left and had asked for that."""
        if leases:
            self._spawn(self._release(leases))

    async def _release(self, leases: Sequence[str]) -> None:
        results = await self.engine.settle(
            [SettleItem(lease, SettleVerb.RELEASE) for lease in leases]
        )
        away = sum(each.status is Status.UNAVAILABLE for each in results)
        if away:
            LOG.warning(
                "the store did not release %d leases of a client that left: they end in time",
                away,
            )

    async def _abandon(self, received: Received) -> None:
        try:
            await self.engine.abandon(received)
        except AckdError as error:
            # The store is away: the leases end at their deadlines, as for a client that died.
            LOG.warning(
                "the store did not release %d leases that no client got, they end in time: %s",
                len(received.messages),
                error,
            )


def limits_of(settings: ServerSettings) -> Limits:
    """Return the bounds of one port, from the settings."""
    return Limits(
        connections_max=settings.connections_max,
        head_bytes_max=settings.head_bytes_max,
        body_bytes_max=settings.body_bytes_max,
        head_timeout_s=settings.head_timeout_ms / 1000,
        body_timeout_s=settings.body_timeout_ms / 1000,
        keepalive_timeout_s=settings.keepalive_timeout_ms / 1000,
        write_timeout_s=settings.body_timeout_ms / 1000,
    )


class HandlerCall:
    """One request on its way. `params` are the variable parts of the path, in order."""

    __slots__ = (
        "body",
        "connection",
        "held",
        "params",
        "query_text",
        "request",
        "service",
    )

    def __init__(
        self,
        service: Service,
        request: Request,
        params: Sequence[str],
        query_text: str,
    ) -> None:
        self.service = service
        self.request = request
        self.connection = request.connection
        self.params = params
        self.query_text = query_text
        self.body = b""
        # Bytes of the budget for bodies that this request holds until it is answered.
        self.held = 0

    def header(self, name: str) -> str:
        """A header's value, empty without it."""
        return self.request.headers.get(name, "")

    def one_header(self, name: str) -> str | None:
        """A header that may occur only once. Raises BadParameterError."""
        values = self.request.headers.getall(name)
        if len(values) > 1:
            raise field_errors([(f"header:{name}", "This header may be sent once only.")])
        return values[0] if values else None

    def query(self, *names: str) -> dict[str, str]:
        """The query's fields; only those named, each at most once. Raises BadParameterError."""
        if not self.query_text:
            return {}
        try:
            pairs = parse_qsl(
                self.query_text, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX
            )
        except ValueError as error:
            raise field_errors([("query", "Too many fields.")]) from error
        found: dict[str, str] = {}
        faults = []
        for name, value in pairs:
            if name not in names:
                faults.append((f"query:{name}", "There is no such parameter here."))
            elif name in found:
                faults.append((f"query:{name}", "This parameter may be sent once only."))
            found[name] = value
        if faults:
            raise field_errors(faults)
        return found

    def worker(self) -> str:
        """Who asks, for `explain`: the header `Ackd-Worker`, else the address."""
        name = self.request.headers.get("Ackd-Worker")
        if name is not None:
            return name.encode("ascii", "replace").decode()[:WORKER_CHARS_MAX]
        return self.connection.peer


def number(fields: dict[str, str], name: str, default: int, low: int, high: int) -> int:
    """A whole number of the query within its bounds. Raises BadParameterError."""
    text = fields.get(name)
    if text is None:
        return default
    value = whole(text)
    if value is None or not low <= value <= high:
        why = f"Expected a whole number from {low} to {high}."
        raise field_errors([(f"query:{name}", why)])
    return value


def truth(fields: dict[str, str], name: str) -> bool:
    """A truth value of the query, false without it. Raises BadParameterError."""
    text = fields.get(name, "false")
    if text not in {"true", "false"}:
        raise field_errors([(f"query:{name}", "Expected true or false.")])
    return text == "true"


def whole(text: str) -> int | None:
    """A number of ASCII digits; None for anything else, and for one that no bound here reaches."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None
