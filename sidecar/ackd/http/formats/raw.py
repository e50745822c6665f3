"""A message outside JSON: its value is the body itself (octet-stream), its facts are headers.

A message header becomes `Ackd-Header-<name>` when it fits into HTTP without loss; when at least one
does not (binary, absent, a name with odd characters), the whole list stands in `Ackd-Headers` as
ASCII JSON instead, exactly as in the JSON form. The same for the key: `Ackd-Key`, or
`Ackd-Key-Base64`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode

from ackd.api.messages import Delivery
from ackd.http.formats.delivery_json import content_type_of, text_or_base64
from ackd.ports import Headers

HeaderPairs = list[tuple[str, str]]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# What a field value may hold so that every HTTP library gives it back unchanged: ASCII, nothing at
# the ends.
_PLAIN = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")


def plain(raw: bytes | None) -> str | None:
    """Return the bytes as a field value, None if they don't fit into one."""
    if raw is None or not raw.isascii():
        return None
    text = raw.decode()
    return text if _PLAIN.fullmatch(text) else None


def _message_headers(headers: Headers) -> HeaderPairs:
    pairs = []
    for name, value in headers:
        text = plain(value)
        if text is None or not _TOKEN.fullmatch(name):
            listed = [(name, text_or_base64(each)) for name, each in headers]
            return [("Ackd-Headers", json.dumps(listed, separators=(",", ":")))]
        pairs.append((f"Ackd-Header-{name}", text))
    return pairs


def facts(delivery: Delivery) -> HeaderPairs:
    """Make header fields of everything but the value."""
    record = delivery.record
    pairs: HeaderPairs = [
        ("Ackd-Id", one_line(delivery.id)),
        ("Ackd-Lease", delivery.lease),
        ("Ackd-Topic", one_line(delivery.topic)),
        ("Ackd-Attempt", str(delivery.attempt)),
        ("Ackd-Attempts-Max", str(delivery.attempts_max)),
        ("Ackd-First-Seen-Ms", str(delivery.first_seen_ms)),
        ("Ackd-Deadline-Ms", str(delivery.deadline_ms)),
        ("Ackd-Published-Ms", str(record.timestamp_ms)),
    ]
    if record.key is not None:
        text = plain(record.key)
        if text is None:
            pairs.append(("Ackd-Key-Base64", b64encode(record.key).decode()))
        else:
            pairs.append(("Ackd-Key", text))
    if record.value is None:
        pairs.append(("Ackd-Tombstone", "true"))
    if delivery.note is not None:
        pairs.append(("Ackd-Note", one_line(delivery.note)))
    kind = content_type_of(record.headers)
    if kind is not None and (text := plain(kind.encode())) is not None:
        pairs.append(("Ackd-Content-Type", text))
    pairs.extend(_message_headers(record.headers))
    return pairs


def one_line(text: str) -> str:
    """Write text as a field value: plain ASCII as it is, other text as a JSON string."""
    fits = plain(text.encode("utf-8", "replace"))
    return fits if fits is not None else json.dumps(text)
