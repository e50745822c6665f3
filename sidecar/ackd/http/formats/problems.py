"""Problem documents (RFC 9457): how every error leaves ackd.

`type` is the relative reference `/problems/<type>`; it is stable, and the sidecar serves a page
there that explains it. `docs` names the same section of the documentation. `title` is the error
class's own docstring, so there is no second table. Further members are the facts that the error
carries, and `errors` lists every field that is wrong, each with a JSON Pointer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from ackd import errors
from ackd.errors import AckdError, BadParameterError, BugError

MEDIA_TYPE = "application/problem+json"
DOCS = "docs/reference/problems.md"

# Members that RFC 9457 or this module defines: an error's facts can't replace them.
RESERVED = frozenset({"type", "title", "status", "detail", "docs", "instance"})

# What a caller can do about it. The key is the error's `type`.
ADVICE = {
    "bad-request": "ackd can't read the request line or headers. Compare them with the examples.",
    "bad-body": "Send JSON (UTF-8) that fits the schema in `/openapi.json`.",
    "bad-parameter": "`errors` names each field that is wrong, and why.",
    "http-version": "Send HTTP/1.1; for another version put a proxy before the sidecar.",
    "unauthorized": "Send `Authorization: Bearer <token>` with the content of the token file.",
    "forbidden": "Web pages may not call a sidecar without a token; set `token_file`.",
    "foreign-host": "Call it by its address or `localhost`, add the name to `server.hosts`, or set "
    "`token_file`.",
    "not-found": "`/openapi.json` lists the addresses of this port. `port` names the other port "
    "if that one has it.",
    "unknown-subscription": "`GET /v1/subscriptions` lists the names that are configured here.",
    "unknown-dead-letter": "List the dead letters again: this one was redriven, purged or deleted.",
    "unknown-operation": "Check the id. ackd keeps results for a week.",
    "nothing-to-undo": "ackd keeps earlier progress for 24 hours. Seek to positions instead.",
    "not-paused": "`POST /v1/subscriptions/{subscription}/pause`, seek, then resume.",
    "unknown-message": "The broker may have deleted it, or it comes later; else check the id.",
    "not-in-flight": "`GET /v1/subscriptions/{subscription}/in-flight` lists those that are.",
    "unknown-outbox-message": "Check the id. ackd keeps results for `publish.outbox_result_ms`.",
    "not-failed": "`GET /v1/outbox/{broker}/{number}` shows the message's state.",
    "operation-running": "Wait for it, or cancel it: `DELETE /v1/operations/{operation}`.",
    "method-not-allowed": "The `Allow` header lists the methods of this address.",
    "not-acceptable": "Change `Accept`; JSON is always possible.",
    "request-timeout": "Send the request faster, or in smaller parts.",
    "lease-lost": "Stop the work: the message is finished, or another worker has it now.",
    "head-too-large": "Send fewer or shorter headers, or raise `server.head_bytes_max`.",
    "body-too-large": "Send less at once, or raise `server.body_bytes_max`.",
    "unsupported-media-type": "Set `Content-Type: application/json` (`curl --json` does).",
    "bad-lease-token": "Send the lease exactly as it was received.",
    "idempotency-mismatch": "Use a new idempotency key for other content.",
    "idempotency-running": "Wait for the first request, then repeat it with the same key.",
    "attempt-mismatch": "Use a new `attempt_id`, or repeat exactly the same request.",
    "not-supported": "`GET /v1/subscriptions/{subscription}` lists what the broker can do.",
    "reserved-topic": "Publish to a topic of your own, and redrive dead letters.",
    "topic-not-allowed": "Publish to a topic that `publish.topics` lists, or have it listed there.",
    "too-many-requests": "Wait for `Retry-After`, then try again; nothing was done.",
    "starting": "Try again; `/readyz` on the admin port says what it waits for.",
    "draining": "Ask another sidecar, or this one after its restart. It still settles leases.",
    "broker-unavailable": "Repeat after `Retry-After`; acks keep working meanwhile.",
    "broker-fatal": "ackd connects again by itself; `/readyz` says what is wrong.",
    "publish-refused": "The broker will never take this message: `detail` says why.",
    "outcome-unknown": "Repeat with the same `Idempotency-Key`, or check by a consumer.",
    "store-unavailable": "Repeat after `Retry-After`; the lease keeps running meanwhile.",
    "store-outcome-unknown": "Repeat: settling is idempotent.",
    "store-data": "An operator has to look at the store; `/readyz` says what is wrong.",
    "store-layout": "Start the newer build again; this one changes nothing in its records.",
    "store-call": "Please report it with the log lines of that moment; nothing was done.",
    "store-setup": "Correct the store's configuration as `detail` says.",
    "too-many-connections": "Keep connections alive and share them, or raise `connections_max`.",
    "bad-configuration": "Run `ackd check`.",
    "peer-away": "Repeat after `Retry-After`; or ask the sidecar that `detail` names.",
    "bug": "Please report it with the log lines of that moment.",
    "error": "See `detail`.",
}


_PREFACE = """\
Every error is a problem document (RFC 9457, `application/problem+json`). `type` is stable: decide
by it, not by `title` or `detail`. The sidecar explains it at that address, too:
`curl localhost:7080/problems/lease-lost`. This page is made from the source (`ackd docs`)."""


def problem(error: AckdError) -> dict[str, object]:
    """Make the document's members, in the order in which people read them."""
    members: dict[str, object] = {
        "type": f"/problems/{error.type}",
        "title": error.title(),
        "status": error.status,
        "detail": error.detail,
    }
    members.update(
        {name: fact for name, fact in error.facts.items() if name not in RESERVED},
    )
    members["docs"] = f"{DOCS}#{error.type}"
    return members


def encode(error: AckdError) -> bytes:
    """Encode the document as JSON. A fact that JSON can't hold becomes text."""
    members = problem(error)
    try:
        return orjson.dumps(members, default=str)
    except TypeError:
        # Text of a client that is not UTF-8 (lone surrogates), or deeper than JSON should be.
        return orjson.dumps({name: _tame(value) for name, value in members.items()})


def _tame(value: object) -> object:
    if isinstance(value, int) and -(2**53) < value < 2**53:
        return value
    return str(value).encode("utf-8", "replace").decode()


def retry_after(error: AckdError) -> str | None:
    """Return the seconds of the Retry-After header: the error's fact `retry_after_s`, else its
    type's.
    """
    fact = error.facts.get("retry_after_s", error.retry_after_s)
    return None if fact is None else str(fact)


def field_errors(faults: Sequence[tuple[str, str]]) -> BadParameterError:
    """Make one error of all wrong fields; each fault is (JSON Pointer or `query:x`/`header:x`,
    why).
    """
    first = "; ".join(f"{where or 'the body'}: {why}" for where, why in faults[:3])
    more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""  # noqa: PLR2004  as above
    return BadParameterError(
        first + more, errors=[{"pointer": where, "detail": why} for where, why in faults]
    )


def bug() -> BugError:
    """Make the error of an unexpected failure: the caller learns only that it happened."""
    return BugError("ackd failed on this request; its log has the details.")


def known() -> Iterator[type[AckdError]]:
    """List every error class, parents first, in the order of the source."""
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, AckdError):
            yield value


def page(kind: str) -> str | None:
    """Render the page behind `/problems/<kind>` as plain text; None if there is no such problem."""
    for error in known():
        if error.type == kind:
            return f"{kind} ({error.status})\n\n{error.title()}\n\n{ADVICE[kind]}\n"
    return None


def catalogue() -> str:
    """`docs/reference/problems.md`: every problem with its status and what to do about it."""
    lines = ["# Problems", "", _PREFACE, ""]
    seen = set()
    for error in known():
        if error.type in seen:
            continue
        seen.add(error.type)
        wait = error.retry_after_s
        status = f"Status {error.status}{'' if wait is None else ', with `Retry-After`'}."
        lines += [f"## {error.type}", "", f"{status} {error.title()} {ADVICE[error.type]}", ""]
    return "\n".join(lines)
