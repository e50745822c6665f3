"""A strict reader of server-sent events (WHATWG HTML, section 9.2.6): no leniency anywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """One dispatched event; `name` is `message` where the stream named none."""

    name: str
    data: str


def parse(raw: bytes) -> list[Event]:
    """All complete events. Raises ValueError for what the grammar does not know."""
    text = raw.decode("utf-8")
    if text and not re.search(r"(\r\n\r\n|\n\n|\r\r)\Z", text):
        raise ValueError(f"the last event has no end: {text[-80:]!r}")
    events: list[Event] = []
    name = ""
    data: list[str] = []
    for line in re.split(r"\r\n|\n|\r", text):
        if not line:
            if data:
                events.append(Event(name or "message", "\n".join(data)))
            name, data = "", []
            continue
        if line.startswith(":"):
            continue
        field, colon, value = line.partition(":")
        if not colon or field not in {"event", "data", "id", "retry"}:
            raise ValueError(f"not a field: {line!r}")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
    return events
