"""PURE: write a message in flight, and what waits for it in order, as one line each."""

from __future__ import annotations

from typing import Any

from ackd.cli.figures import age, clean, cut, cut_head, until

Json = dict[str, Any]
NAME_MIN = 12
NAME_MAX = 40


def message_line(message: Json, width: int, now_ms: int) -> str:
    """Write a message; its id comes first, because people search for it."""
    waits = message["deadline_ms"] or message["due_ms"]
    when = "" if waits is None else f" {until(waits, now_ms)}"
    out = f"attempt {message['attempt']}, {age((now_ms - message['since_ms']) / 1000)} old"
    if not message["since_ms"]:
        out = "not delivered yet" if message["state"] == "ready" else "age not known yet"
    tail = f" {clean(message['state'], 8):<8} {out}{when}"
    who = clean(message["holder"], 40)
    if who and len(tail) + len(who) + NAME_MAX <= width:
        tail += f", {who}"
    if published_ms := message.get("published_ms"):
        published = f", published {age((now_ms - published_ms) / 1000)} ago"
        tail += published if len(tail) + len(published) + NAME_MAX <= width else ""
    room = max(width - len(tail), NAME_MIN)
    return cut(f"{cut_head(clean(message['id']), room).ljust(min(room, NAME_MAX))}{tail}", width)


def ordered_line(held: Json) -> str:
    """Write what waits for one message of a key, or of a partition, of an ordered subscription."""
    key = "" if held["key"] is None else f" of the key {clean(held['key'], 60)}"
    where = ", all of them in the retry topic" if held["blocked"] else ""
    return f"{held['waiting']} later ones{key} wait for {clean(held['head']['id'])}{where}"
