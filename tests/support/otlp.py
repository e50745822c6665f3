"""Trace lines, read by the official messages; counted by event for comparisons."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData


def read_line(line: bytes | str) -> TracesData:
    """A line of OTLP JSON. Raises ValueError on anything that the messages do not know.

    Ids are hexadecimal in OTLP JSON and base64 in that of protobuf; that is the one difference
    (OTLP 1.x, "JSON Protobuf Encoding").
    """
    document: dict[str, Any] = json.loads(line)
    for resource in document.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for each in (span, *span.get("links", ())):
                    for name in ("traceId", "spanId", "parentSpanId"):
                        if name in each:
                            each[name] = base64.b64encode(bytes.fromhex(each[name])).decode()
    try:
        return ParseDict(document, TracesData())
    except Exception as error:
        message = f"unknown or wrong: {error}"
        raise ValueError(message) from error


def read_files(folder: Path, *, hidden: bool = False) -> Iterator[TracesData]:
    """Every line of the files that have their name; `hidden`: of those too that are written."""
    for path in sorted(folder.glob("*.jsonl.gz")) + sorted(
        folder.glob(".*.jsonl.gz") if hidden else ()
    ):
        with gzip.open(path) as file:
            for each in file:
                yield read_line(each)


def attributes(holder: Any) -> dict[str, Any]:
    """Of a span or a resource, by name."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "")
        for each in holder.attributes
    }


def spans(folder: Path, *, hidden: bool = False) -> list[dict[str, Any]]:
    """All spans as flat dictionaries: attributes, `name`, `start`, `end` (ns), `trace`, `span`,
    `parent`, `links`, `boot` and `instance`.
    """
    return [each for data in read_files(folder, hidden=hidden) for each in flat_spans(data)]


def flat_spans(data: TracesData) -> Iterator[dict[str, Any]]:
    """The spans of one line in the form of `spans`."""
    for resource in data.resource_spans:
        of = {each.key: each.value.string_value for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield attributes(span) | {
                    "name": span.name,
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "links": [each.trace_id.hex() for each in span.links],
                    "boot": of.get("ackd.boot.id", ""),
                    "instance": of.get("service.instance.id", ""),
                }


def offsets(text: str) -> Iterator[int]:
    """`100-131,140` as numbers."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
