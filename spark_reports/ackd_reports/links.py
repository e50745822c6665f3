"""What a report is shown with: links from messages to a trace viewer and to ackd, and marks."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

FIELDS: Final = (
    *("trace_id", "system", "cluster", "topic", "partition", "message", "group", "application"),
    *("since_ms", "until_ms"),
)
"""What a template may name. `since_ms` and `until_ms` are a minute before and after its life."""
_AROUND_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Presentation:
    """Templates of links, "" for none, and `marks`: times and what was then, say a deploy."""

    trace_link: str = ""
    ackd_link: str = ""
    marks: tuple[tuple[int, str], ...] = ()


NOTHING_MORE: Final = Presentation()


def template(text: str) -> str:
    """A template that can be used; `ValueError` says why another one cannot."""
    if not text.startswith(("https://", "http://")):
        raise ValueError("it must begin with https:// or http://")
    try:
        named = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise ValueError(f"{error}; write {{{{ and }}}} for braces") from None
    unknown = sorted({name for name in named if name not in FIELDS})
    if unknown:
        raise ValueError(f"unknown {', '.join(unknown)}; allowed are {', '.join(FIELDS)}")
    return text


def address(pattern: str, message: Mapping[str, Any]) -> str:
    """Where a message of the report leads. Names come from anybody, so they are quoted."""
    first, last = message["born"] or message["first"], message["seen_last"] or message["born"]
    times = {
        "since_ms": "" if first is None else str(_ms(first) - _AROUND_MS),
        "until_ms": "" if last is None else str(_ms(last) + _AROUND_MS),
    }
    fields = {name: str(message.get(name) or "") for name in FIELDS} | times
    return pattern.format_map({name: quote(value, safe="") for name, value in fields.items()})


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
