"""A line of a trace file, which is also the body of one export: a `TracesData` of OTLP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ackd.telemetry.acked import Acked, texts

PART_SPANS = 48


def line_parts(
    resource: str, spans: Sequence[str], scope: str, acks: Sequence[Acked] = ()
) -> Iterator[bytes]:
    """Make the line in parts whose memory the allocator can reuse.

    A line of megabytes in one piece would get fresh memory from the kernel each time, which cost
    three times as much as compressing it.
    """
    yield (
        f'{{"resourceSpans":[{{"resource":{{"attributes":[{resource}]}},'
        f'"scopeSpans":[{{"scope":{scope},"spans":['
    ).encode()
    for at in range(0, len(spans), PART_SPANS):
        part = ",".join(spans[at : at + PART_SPANS])
        yield (f",{part}" if at else part).encode()
    for at in range(0, len(acks), PART_SPANS):
        part = ",".join(texts(acks[at : at + PART_SPANS]))
        yield (f",{part}" if at or spans else part).encode()
    yield b"]}]}]}\n"


def line(resource: str, spans: Sequence[str], scope: str) -> bytes:
    """The parts of `line_parts`, joined."""
    return b"".join(line_parts(resource, spans, scope))
