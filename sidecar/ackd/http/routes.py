"""All routes of both ports. A route that is added here is served, documented and tested."""

from __future__ import annotations

from ackd.api.messages import GroupExplanation, GroupInFlight, GroupLag, SubscriptionView
from ackd.core.record.settles import SETTLES, SettleRule
from ackd.http.formats import model
from ackd.http.formats.model import DELAY_MS_MAX, INT32_MAX
from ackd.http.formats.negotiation import CE_BATCH, CE_JSON, JSON, NDJSON, OCTETS, SSE
from ackd.http.handlers import outbox, publish, settle, stream, views
from ackd.http.handlers import receive as consume
from ackd.http.handlers.control import CONTROL
from ackd.http.handlers.dead_letters import DEAD_ROUTES
from ackd.http.handlers.long_operations import OPERATION_ROUTES
from ackd.http.handlers.messages import MESSAGE_ROUTES
from ackd.http.handlers.outbox import OUTBOX_ROUTES, PREFER
from ackd.http.handlers.progress import PROGRESS_ROUTES
from ackd.http.handlers.views import SCOPE
from ackd.http.server.router import BOTH, PROBED, Content, Param, Route, RouteAnswer

_TEXT: dict[str, object] = {"type": "string"}
_SUBSCRIPTION = "/v1/subscriptions/{subscription}"
_LEASE = "/v1/leases/{lease}"

_WORKER = Param(
    "Ackd-Worker", "header", "Name of the worker, for `explain`; default: its address.", _TEXT
)
_PREFER = Param(
    "Prefer",
    "header",
    "`wait=<seconds>` (RFC 7240), where the body has no `wait_ms`; `cloudevents=binary` turns an "
    "octet-stream into a CloudEvent in binary mode.",
    _TEXT,
)
_BROKER = Param("broker", "query", "Name of the broker, when there are several.", _TEXT)
_IDEMPOTENCY = Param(
    "Idempotency-Key",
    "header",
    "A repeat with the same key and content gets the first answer and publishes nothing.",
    {"type": "string", "pattern": "^[!#-~]{1,255}$"},
)


def _whole(low: int, high: int) -> dict[str, object]:
    return {"type": "integer", "minimum": low, "maximum": high}


RECEIVE = Route(
    "POST",
    f"{_SUBSCRIPTION}/receive",
    "receive",
    "Lease messages and wait for the first one. The body may settle earlier leases first.",
    consume.receive,
    "receive",
    (
        RouteAnswer(
            200,
            "The leased messages. An empty list is a success.",
            (
                Content(JSON, model.Messages),
                Content(OCTETS, bytes),
                Content(CE_BATCH, list),
                Content(CE_JSON, dict),
            ),
            ("Retry-After",),
        ),
        RouteAnswer(204, "There is no message (forms for a single message)."),
    ),
    body=(Content(JSON, model.ReceiveBody),),
    params=(_WORKER, _PREFER),
    problems=(404, 406, 503),
)

STREAM = Route(
    "GET",
    f"{_SUBSCRIPTION}/stream",
    "stream",
    "Lease messages in one long answer, one line each. Other requests settle them.",
    stream.stream,
    "receive",
    (
        RouteAnswer(
            200,
            "Lines with messages and heartbeats, and a last one that ends the stream.",
            (Content(NDJSON, str), Content(SSE, str)),
        ),
    ),
    params=(
        Param(
            "Ackd-Worker",
            "header",
            "Name of the worker, for `explain`. Required where there is no token: a web page "
            "can't send it.",
            _TEXT,
        ),
        Param(
            "in_flight",
            "query",
            f"Most unsettled messages of this stream at once; default {stream.IN_FLIGHT}.",
            _whole(1, stream.IN_FLIGHT_MAX),
        ),
        Param(
            "duration_ms",
            "query",
            "After how long the stream ends by itself; default: an hour.",
            _whole(1, stream.DURATION_MS_MAX),
        ),
        Param(
            "lease_ms",
            "query",
            "How long the leases last; default: the subscription's.",
            _whole(1, model.LEASE_MS_MAX),
        ),
        Param(
            "release_on_close",
            "query",
            "Whether a lost connection releases unsettled messages; their attempt does not count.",
            {"type": "boolean"},
        ),
    ),
    problems=(404, 406, 503),
)

SETTLE = Route(
    "POST",
    "/v1/settle",
    "settle",
    "Settle leases of any subscriptions. The answer has a result for each.",
    settle.settle,
    "settle",
    (
        RouteAnswer(
            200,
            "One result per item, in order. `Retry-After` when some are `unavailable`.",
            (Content(JSON, model.Results),),
            ("Retry-After",),
        ),
    ),
    body=(Content(JSON, model.SettleBody),),
    body_required=True,
    problems=(503,),
)


def _single(rule: SettleRule) -> Route:
    return Route(
        "POST",
        f"{_LEASE}/{rule.do.value}",
        rule.do.value,
        rule.text,
        settle.ONE[rule.do],
        "settle",
        (RouteAnswer(200, "ackd has stored the result durably.", (Content(JSON, model.Result),)),),
        body=(Content(JSON, model.OPTIONS[rule.do]),),
        problems=(410, 503),
    )


_SINGLE = tuple(_single(rule) for rule in SETTLES.values())

_LOOK = Route(
    "GET",
    _LEASE,
    "lease",
    "Look at a lease without changing it.",
    settle.look,
    "settle",
    (RouteAnswer(200, "The state of the lease.", (Content(JSON, model.LeaseState),)),),
    problems=(503,),
)

_LIMITS = ("RateLimit-Policy", "RateLimit")

_ACCEPTED = RouteAnswer(
    202,
    "The message is durable in the outbox; ackd sends it when it is due.",
    (Content(JSON, outbox.AcceptedMessage),),
    ("Location", "Idempotent-Replayed", *_LIMITS),
)

_PUBLISH = (
    Route(
        "POST",
        "/v1/topics/{topic}/messages",
        "publish",
        "Publish one message. The body is its value, byte for byte.",
        publish.one,
        "publish",
        (
            RouteAnswer(
                201,
                "The broker has stored the message.",
                (Content(JSON, model.Stored),),
                ("Idempotent-Replayed", *_LIMITS),
            ),
            _ACCEPTED,
        ),
        body=(Content(OCTETS, bytes), Content(CE_JSON, dict), Content("*/*", bytes)),
        params=(
            _BROKER,
            _IDEMPOTENCY,
            PREFER,
            Param("Ackd-Key", "header", "The message's key.", _TEXT),
            Param(
                "Ackd-Key-Base64",
                "header",
                "The message's key when it is not text; not together with `Ackd-Key`.",
                {"type": "string", "contentEncoding": "base64"},
            ),
            Param("Ackd-Partition", "header", "Publish to this partition.", _whole(0, INT32_MAX)),
            Param(
                "Ackd-Delay-Ms",
                "header",
                "Deliver the message after this delay.",
                _whole(0, DELAY_MS_MAX),
            ),
            Param(
                "Ackd-Tombstone",
                "header",
                "The message has no value (send no body).",
                {"type": "boolean"},
            ),
            Param(
                "Ackd-Headers",
                "header",
                "Message headers as a JSON list of pairs. `Ackd-Header-<name>`, `ce-<name>` "
                "(CloudEvents), `traceparent` and `tracestate` become message headers, too.",
                {"type": "string", "contentMediaType": JSON},
            ),
        ),
        problems=(404, 409, 429, 503, 504),
    ),
    Route(
        "POST",
        "/v1/topics/{topic}/messages:batch",
        "publish_batch",
        "Publish messages in order. The answer has a result for each.",
        publish.batch,
        "publish",
        (
            RouteAnswer(
                200,
                "The broker has stored at least one. One result per message, in order.",
                (Content(JSON, model.Batch),),
                ("Idempotent-Replayed", *_LIMITS),
            ),
            RouteAnswer(
                202,
                "All messages are durable in the outbox.",
                (Content(JSON, model.Batch),),
                ("Idempotent-Replayed", *_LIMITS),
            ),
        ),
        body=(Content(JSON, model.BatchBody), Content(CE_BATCH, list)),
        body_required=True,
        params=(_BROKER, _IDEMPOTENCY, PREFER),
        problems=(404, 409, 429, 503, 504),
    ),
)

_VIEWS = (
    Route(
        "GET",
        "/v1/subscriptions",
        "subscriptions",
        "All subscriptions: their settings in force, and the source of each setting.",
        views.subscriptions,
        "look",
        (RouteAnswer(200, "The subscriptions.", (Content(JSON, model.Subscriptions),)),),
        BOTH,
    ),
    Route(
        "GET",
        _SUBSCRIPTION,
        "subscription",
        "One subscription: its settings in force, its state, and what its broker can do.",
        views.subscription,
        "look",
        (RouteAnswer(200, "The subscription.", (Content(JSON, SubscriptionView),)),),
        BOTH,
        problems=(404,),
    ),
    Route(
        "GET",
        f"{_SUBSCRIPTION}/explain",
        "explain",
        "Explain what holds up each partition's progress, and what limits delivery now.",
        views.explain,
        "look",
        (RouteAnswer(200, "The reasons.", (Content(JSON, GroupExplanation),)),),
        BOTH,
        params=(SCOPE,),
        problems=(404, 503),
    ),
    Route(
        "GET",
        f"{_SUBSCRIPTION}/lag",
        "lag",
        "Progress of each partition.",
        views.lag,
        "look",
        (RouteAnswer(200, "One entry per partition.", (Content(JSON, GroupLag),)),),
        BOTH,
        params=(SCOPE,),
        problems=(404, 503),
    ),
    Route(
        "GET",
        f"{_SUBSCRIPTION}/in-flight",
        "in_flight",
        "List messages that are leased or wait for a retry, the oldest first.",
        views.in_flight,
        "look",
        (RouteAnswer(200, "The messages.", (Content(JSON, GroupInFlight),)),),
        BOTH,
        params=(
            Param(
                "older_ms",
                "query",
                "Only messages first delivered longer ago than this.",
                _whole(0, views.OLDER_MS_MAX),
            ),
            Param(
                "max",
                "query",
                "Most messages to list; default 100.",
                _whole(1, views.IN_FLIGHT_MAX),
            ),
            SCOPE,
        ),
        problems=(404, 503),
    ),
)

_HEALTH = (
    Route(
        "GET",
        "/livez",
        "livez",
        "Whether the process answers.",
        views.livez,
        "health",
        (RouteAnswer(200, "The process answers.", (Content(JSON, model.Liveness),)),),
        PROBED,
        open=True,
    ),
    Route(
        "GET",
        "/readyz",
        "readyz",
        "Whether the sidecar is ready: it reaches broker and store, has its partitions, and is not "
        "stopping.",
        views.readyz,
        "health",
        (
            RouteAnswer(200, "The sidecar is ready.", (Content(JSON, model.Readiness),)),
            RouteAnswer(
                503,
                "The sidecar is not ready; `reasons` says why.",
                (Content(JSON, model.Readiness),),
            ),
        ),
        PROBED,
        open=True,
    ),
    Route(
        "GET",
        "/metrics",
        "metrics",
        "Prometheus metrics.",
        views.metrics,
        "health",
        (
            RouteAnswer(
                200,
                "The metrics.",
                (Content("text/plain", str), Content("application/openmetrics-text", str)),
            ),
        ),
        PROBED,
    ),
    Route(
        "GET",
        "/v1/info",
        "info",
        "Version, identity, uptime, adapters.",
        views.info,
        "health",
        (RouteAnswer(200, "Facts about this process.", (Content(JSON, dict),)),),
        ("admin",),
    ),
    Route(
        "GET",
        "/openapi.json",
        "openapi_data",
        "This port's part of the OpenAPI 3.1 document.",
        views.data_document,
        "documents",
        (RouteAnswer(200, "The document.", (Content(JSON, dict),)),),
    ),
    Route(
        "GET",
        "/openapi.json",
        "openapi_admin",
        "This port's part of the OpenAPI 3.1 document.",
        views.admin_document,
        "documents",
        (RouteAnswer(200, "The document.", (Content(JSON, dict),)),),
        ("admin",),
    ),
    Route(
        "GET",
        "/problems/{problem}",
        "problem",
        "Explain a problem type.",
        views.problem,
        "documents",
        (RouteAnswer(200, "The explanation.", (Content("text/plain", str),)),),
        BOTH,
        problems=(404,),
        open=True,
    ),
)

ROUTES: tuple[Route, ...] = (
    *(RECEIVE, STREAM, SETTLE, *_SINGLE, _LOOK, *_PUBLISH),
    *(*OUTBOX_ROUTES, *_VIEWS, *MESSAGE_ROUTES, *CONTROL, *PROGRESS_ROUTES, *DEAD_ROUTES),
    *(*OPERATION_ROUTES, *_HEALTH),
)
