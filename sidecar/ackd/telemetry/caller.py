"""The caller of the request that is being served, for the sidecar's own spans: its trace context.

Only the request's own work belongs to its caller's trace. Tasks that the request starts inherit the
variable, so a span uses it only where it asks for it (`Traces.own`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

FIELDS = ("traceparent", "tracestate")
"""Headers (W3C Trace Context)."""
CALLER: ContextVar[Mapping[str, str] | None] = ContextVar("CALLER", default=None)


@contextmanager
def calling(headers: Mapping[str, str]) -> Iterator[None]:
    """While the block runs, `CALLER` has the trace context of these request headers.

    Whoever uses the context checks it. Field names are looked up in lower case: `headers` ignores
    the case, or has lower case.
    """
    if FIELDS[0] not in headers:
        yield
        return
    token = CALLER.set({name: headers[name] for name in FIELDS if name in headers})
    try:
        yield
    finally:
        CALLER.reset(token)
