"""The sidecar's own few spans, made by the OpenTelemetry SDK.

Start, stop, takeover, outage and the like are rare, so the SDK's cost does not matter for them. It
brings parents, limits and whatever the specification adds. A processor turns each finished span
into the same text that messages' spans have, so both leave by one exporter, with one bound and one
count of losses. Loaded only when traces are on. Nothing global is set, and of the SDK's environment
only `OTEL_SDK_DISABLED` counts: sampling would remove starts from the reports.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

from opentelemetry.context import Context
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NoOpTracer, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from ackd import __version__
from ackd.telemetry.spans import digest

LOG = logging.getLogger("ackd.traces")
ATTRIBUTES_MAX = 128
_REMOTE_KNOWN, _REMOTE = 0x100, 0x200
"""Bits of `flags` in OTLP: whether the parent is remote is known, and it is."""
_LIMITS = SpanLimits(
    max_attributes=ATTRIBUTES_MAX,
    max_span_attributes=ATTRIBUTES_MAX,
    max_event_attributes=ATTRIBUTES_MAX,
    max_link_attributes=ATTRIBUTES_MAX,
    max_events=ATTRIBUTES_MAX,
    max_links=ATTRIBUTES_MAX,
    max_attribute_length=SpanLimits.UNSET,
    max_span_attribute_length=SpanLimits.UNSET,
)
_CONTEXT = TraceContextTextMapPropagator()


class OwnSpans:
    """Makes the sidecar's own spans. `put` gets each as text. Only one thread may call it."""

    def __init__(self, resource: Mapping[str, str], put: Callable[[str], None]) -> None:
        self._ids = _Derived()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource(dict(resource)),
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=_LIMITS,
            meter_provider=NoOpMeterProvider(),
        )
        provider.add_span_processor(_Finished(put))
        self._tracer = provider.get_tracer("ackd", __version__)
        if isinstance(self._tracer, NoOpTracer):
            LOG.warning(
                "traces: OTEL_SDK_DISABLED is set, so the sidecar writes no spans of its own"
            )

    def tell(
        self,
        name: str,
        attributes: Mapping[str, AttributeValue],
        times_us: tuple[int, int],
        seed: str,
        *,
        error: bool = False,
        caller: Mapping[str, str] | None = None,
    ) -> None:
        """Make a span and end it.

        `seed`: ids are derived from it, so whoever reports the same event again writes the same
        ids. `caller`: headers with a W3C trace context, which becomes the parent if it is valid.
        """
        self._ids.seed = seed
        parent = Context()
        if caller is not None:
            parent = _CONTEXT.extract(caller, parent)
        start_us, end_us = times_us
        span = self._tracer.start_span(
            name,
            parent,
            SpanKind.INTERNAL,
            attributes,
            start_time=min(start_us, end_us) * 1000,
            record_exception=False,
        )
        if error:
            span.set_status(StatusCode.ERROR)
        span.end(end_us * 1000)


class _Derived(IdGenerator):
    """Makes trace and span ids from a seed that the caller sets before each span."""

    def __init__(self) -> None:
        self.seed = ""

    def generate_trace_id(self) -> int:
        """Make the id for a span without a parent."""
        return digest("own trace", self.seed, size=16) or 1

    def generate_span_id(self) -> int:
        return digest("own span", self.seed, size=8) or 1


class _Finished(SpanProcessor):
    """Passes finished spans on, as text."""

    def __init__(self, put: Callable[[str], None]) -> None:
        self._put = put

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: only finished spans leave the process."""

    def on_end(self, span: ReadableSpan) -> None:
        """Pass the finished span on as text."""
        self._put(encoded(span))

    def shutdown(self) -> None: ...

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


def encoded(span: ReadableSpan) -> str:
    """Encode a finished span of the SDK as OTLP JSON (hexadecimal ids, 64-bit integers as text)."""
    context = span.context
    document: dict[str, object] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,  # OTLP has a kind of 0, which means unspecified.
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes),
        "flags": int(context.trace_flags) | _REMOTE_KNOWN,
    }
    if span.parent is not None:
        document["parentSpanId"] = f"{span.parent.span_id:016x}"
        if span.parent.is_remote:
            document["flags"] = int(context.trace_flags) | _REMOTE_KNOWN | _REMOTE
    if context.trace_state:
        document["traceState"] = context.trace_state.to_header()
    if span.dropped_attributes:
        document["droppedAttributesCount"] = span.dropped_attributes
    if span.status.status_code is not StatusCode.UNSET:
        document["status"] = {"code": span.status.status_code.value}
    return json.dumps(document, separators=(",", ":"))


def _attributes(values: Mapping[str, AttributeValue] | None) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in (values or {}).items()]


def _value(value: object) -> dict[str, object]:
    """Encode one value; a type that ackd does not use becomes text."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case tuple() | list():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case _:
            return {"stringValue": str(value)}
