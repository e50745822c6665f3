"""Who called, for the sidecar's own spans: the trace context of the request that is being served.

Only what a request itself does is told under its caller's trace. Tasks that it starts inherit the
variable, so a span takes it where it says so and nowhere else (`Traces.own`).
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
    """The block serves a request with these headers. What is not valid is found where it is used.

    Field names are looked up in lower case: `headers` ignores the case, or has them so.
    """
    if FIELDS[0] not in headers:
        yield
        return
    token = CALLER.set({name: headers[name] for name in FIELDS if name in headers})
    try:
        yield
    finally:
        CALLER.reset(token)
