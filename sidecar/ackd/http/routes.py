"""All routes of both ports. Adding one here serves it, documents it and puts it under the tests."""

from __future__ import annotations

from ackd.api.messages import Explanation, SubscriptionView
from ackd.http.formats import model
from ackd.http.formats.model import DELAY_MS_MAX, INT32_MAX
from ackd.http.formats.negotiation import CE_BATCH, CE_JSON, JSON, MULTIPART, NDJSON, OCTETS, SSE
from ackd.http.handlers import outbox, publish, settle, stream, views
from ackd.http.handlers import receive as consume
from ackd.http.handlers.control_routes import CONTROL
from ackd.http.handlers.dead_letters_routes import DEAD_ROUTES
from ackd.http.handlers.outbox_routes import OUTBOX_ROUTES, PREFER
from ackd.http.handlers.progress_routes import PROGRESS_ROUTES
from ackd.http.server.router import BOTH, PROBED, Answer, Content, Handler, Param, Route

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
    "Lease messages, waiting for the first one; settles leases of earlier ones first, if asked to.",
    consume.receive,
    "receive",
    (
        Answer(
            200,
            "Messages under lease; an empty list is a success.",
            (
                Content(JSON, model.Messages),
                Content(OCTETS, bytes),
                Content(MULTIPART, bytes),
                Content(CE_BATCH, list),
                Content(CE_JSON, dict),
            ),
            ("Retry-After",),
        ),
        Answer(204, "No message (in the forms with room for one, and multipart)."),
    ),
    body=(Content(JSON, model.ReceiveBody),),
    params=(_WORKER, _PREFER),
    problems=(404, 406, 503),
)

STREAM = Route(
    "GET",
    f"{_SUBSCRIPTION}/stream",
    "stream",
    "Lease messages in one long answer, a line each; settle them by other requests.",
    stream.stream,
    "receive",
    (Answer(200, "Messages, heartbeats, and an end.", (Content(NDJSON, str), Content(SSE, str))),),
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
            f"Most messages of this stream that are unsettled at once; default {stream.IN_FLIGHT}.",
            _whole(1, stream.IN_FLIGHT_MAX),
        ),
        Param(
            "duration_ms",
            "query",
            "When the stream ends by itself; default: an hour.",
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
            "Whether unsettled messages go back, uncounted, when the connection is lost.",
            {"type": "boolean"},
        ),
    ),
    problems=(404, 406, 503),
)

SETTLE = Route(
    "POST",
    "/v1/settle",
    "settle",
    "Settle leases of any subscription; says for each what became of it.",
    settle.settle,
    "settle",
    (
        Answer(
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


def _single(verb: str, text: str, handler: Handler, body: object) -> Route:
    return Route(
        "POST",
        f"{_LEASE}/{verb}",
        verb,
        text,
        handler,
        "settle",
        (Answer(200, "It is done, durably.", (Content(JSON, model.Result),)),),
        body=(Content(JSON, body),),
        problems=(410, 503),
    )


_SINGLE = (
    _single("ack", "The message is done.", settle.ack, model.NoOptions),
    _single("retry", "Hand it out again after a delay.", settle.retry, model.RetryOptions),
    _single("extend", "Keep the lease for longer.", settle.extend, model.ExtendOptions),
    _single("dead", "Never hand it out again.", settle.dead, model.DeadOptions),
    _single(
        "release", "Give it back; the attempt does not count.", settle.release, model.NoOptions
    ),
)

_LOOK = Route(
    "GET",
    _LEASE,
    "lease",
    "Look at a lease without changing it.",
    settle.look,
    "settle",
    (Answer(200, "Its state.", (Content(JSON, model.LeaseState),)),),
    problems=(503,),
)

_ACCEPTED = Answer(
    202,
    "Durable in the outbox; it is sent when it is due.",
    (Content(JSON, outbox.AcceptedMessage),),
    ("Location", "Idempotent-Replayed"),
)

_PUBLISH = (
    Route(
        "POST",
        "/v1/topics/{topic}/messages",
        "publish",
        "Publish one message: the body is its value, byte for byte.",
        publish.one,
        "publish",
        (
            Answer(201, "Stored.", (Content(JSON, model.Stored),), ("Idempotent-Replayed",)),
            _ACCEPTED,
        ),
        body=(Content(OCTETS, bytes), Content(CE_JSON, dict), Content("*/*", bytes)),
        params=(
            _BROKER,
            _IDEMPOTENCY,
            PREFER,
            Param("Ackd-Key", "header", "The key.", _TEXT),
            Param(
                "Ackd-Key-Base64",
                "header",
                "The key when it is not text; not together with `Ackd-Key`.",
                {"type": "string", "contentEncoding": "base64"},
            ),
            Param("Ackd-Partition", "header", "Exactly this partition.", _whole(0, INT32_MAX)),
            Param("Ackd-Delay-Ms", "header", "Not before this time.", _whole(0, DELAY_MS_MAX)),
            Param("Ackd-Tombstone", "header", "No value at all (no body).", {"type": "boolean"}),
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
        "Publish messages in order; says for each what became of it.",
        publish.batch,
        "publish",
        (
            Answer(
                200,
                "At least one is stored; one result per message, in order.",
                (Content(JSON, model.Batch),),
                ("Idempotent-Replayed",),
            ),
            Answer(
                202,
                "All are in the outbox.",
                (Content(JSON, model.Batch),),
                ("Idempotent-Replayed",),
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
        "All subscriptions with the settings in force and where each comes from.",
        views.subscriptions,
        "look",
        (Answer(200, "All of them.", (Content(JSON, model.Subscriptions),)),),
        BOTH,
    ),
    Route(
        "GET",
        _SUBSCRIPTION,
        "subscription",
        "One subscription: settings in force, state, what its broker can do.",
        views.subscription,
        "look",
        (Answer(200, "The subscription.", (Content(JSON, SubscriptionView),)),),
        BOTH,
        problems=(404,),
    ),
    Route(
        "GET",
        f"{_SUBSCRIPTION}/explain",
        "explain",
        "What holds each partition's progress, and what keeps messages from being handed out.",
        views.explain,
        "look",
        (Answer(200, "The reasons.", (Content(JSON, Explanation),)),),
        BOTH,
        problems=(404, 503),
    ),
    Route(
        "GET",
        f"{_SUBSCRIPTION}/lag",
        "lag",
        "Progress of each partition.",
        views.lag,
        "look",
        (Answer(200, "One entry a partition.", (Content(JSON, model.Partitions),)),),
        BOTH,
        problems=(404, 503),
    ),
    Route(
        "GET",
        f"{_SUBSCRIPTION}/in-flight",
        "in_flight",
        "Messages that are leased or wait for a retry, the oldest first.",
        views.in_flight,
        "look",
        (Answer(200, "The messages.", (Content(JSON, model.InFlightMessages),)),),
        BOTH,
        params=(
            Param("older_ms", "query", "Only those out for longer.", _whole(0, views.OLDER_MS_MAX)),
            Param("max", "query", "How many; default 100.", _whole(1, views.IN_FLIGHT_MAX)),
        ),
        problems=(404, 503),
    ),
)

_HEALTH = (
    Route(
        "GET",
        "/livez",
        "livez",
        "The process answers.",
        views.livez,
        "health",
        (Answer(200, "It does.", (Content(JSON, model.Liveness),)),),
        PROBED,
        open=True,
    ),
    Route(
        "GET",
        "/readyz",
        "readyz",
        "Broker, store and partitions are there; else 503 with the reasons, as while stopping.",
        views.readyz,
        "health",
        (
            Answer(200, "Ready.", (Content(JSON, model.Readiness),)),
            Answer(503, "Not ready.", (Content(JSON, model.Readiness),)),
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
            Answer(
                200,
                "The exposition.",
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
        (Answer(200, "The facts.", (Content(JSON, dict),)),),
        ("admin",),
    ),
    Route(
        "GET",
        "/openapi.json",
        "openapi_data",
        "This port's part of the OpenAPI 3.1 document.",
        views.data_document,
        "documents",
        (Answer(200, "The document.", (Content(JSON, dict),)),),
    ),
    Route(
        "GET",
        "/openapi.json",
        "openapi_admin",
        "This port's part of the OpenAPI 3.1 document.",
        views.admin_document,
        "documents",
        (Answer(200, "The document.", (Content(JSON, dict),)),),
        ("admin",),
    ),
    Route(
        "GET",
        "/problems/{problem}",
        "problem",
        "Explains a problem type.",
        views.problem,
        "documents",
        (Answer(200, "The explanation.", (Content("text/plain", str),)),),
        BOTH,
        problems=(404,),
        open=True,
    ),
)

ROUTES: tuple[Route, ...] = (
    *(RECEIVE, STREAM, SETTLE, *_SINGLE, _LOOK, *_PUBLISH),
    *(*OUTBOX_ROUTES, *_VIEWS, *CONTROL, *PROGRESS_ROUTES, *DEAD_ROUTES, *_HEALTH),
)
