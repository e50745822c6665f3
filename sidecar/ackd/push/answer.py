"""Decides by one table what an application's answer means for its message.

| answer | meaning |
|---|---|
| 2xx | ack |
| 202 | the application keeps the lease and settles later |
| 429 or 503 with `Retry-After` | retry then, not counted; the subscription slows |
| `Ackd-Do: ack`, `retry` or `dead`, with `Ackd-Delay-Ms` | that, whatever the status |
| everything else, 404 included | retry by the schedule |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import msgspec

from ackd.api.messages import SettleItem, SettleVerb
from ackd.config.units import HOUR_MS
from ackd.core.record.settles import SETTLES, Due
from ackd.http.formats.model import DELAY_MS_MAX, Item
from ackd.unreadable import UNREADABLE

RETRY_AFTER_MS_MIN = 100
RETRY_AFTER_MS_MAX = HOUR_MS
_PRESSURE = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_DIGITS_MAX = 12
_VERBS = {rule.do.value: rule for rule in SETTLES.values() if rule.push}


@dataclass(frozen=True, slots=True)
class PushVerdict:
    """`do` None: the application keeps the lease. `pause_ms`: how long to send nothing. `explicit`:
    the application gave the verdict with `Ackd-Do`. `outcome` is for metrics: ack, kept, retry,
    dead, pressure.
    """

    do: SettleVerb | None
    outcome: str
    delay_ms: int | None = None
    count: bool = True
    reason: str | None = None
    pause_ms: int = 0
    explicit: bool = False

    def item(self, lease: str) -> SettleItem | None:
        """The settle of one lease, None when it is kept."""
        if self.do is None:
            return None
        return SettleItem(
            lease, self.do, delay_ms=self.delay_ms, reason=self.reason, count=self.count
        )


def judge(status: int, headers: Mapping[str, str], now_ms: int) -> PushVerdict:
    """Decide by the table. `now_ms` is Unix time, for a `Retry-After` that is a date."""
    delay_ms = _number(headers.get("Ackd-Delay-Ms", ""), DELAY_MS_MAX)
    rule = _VERBS.get(headers.get("Ackd-Do", "").strip().lower())
    if rule is not None:
        return PushVerdict(
            rule.do,
            rule.do.value,
            delay_ms=delay_ms if rule.due is Due.DELAY else None,
            reason=f"the application said {rule.do.value}" if rule.reason else None,
            explicit=True,
        )
    if status == HTTPStatus.ACCEPTED:
        return PushVerdict(None, "kept")
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return PushVerdict(SettleVerb.ACK, "ack")
    reason = f"HTTP {status}"
    if status in _PRESSURE:
        wait_ms = retry_after_ms(headers.get("Retry-After", ""), now_ms)
        if wait_ms is not None:
            return PushVerdict(
                SettleVerb.RETRY, "pressure", wait_ms, count=False, reason=reason, pause_ms=wait_ms
            )
    return PushVerdict(SettleVerb.RETRY, "retry", delay_ms, reason=reason)


def retry_after_ms(text: str, now_ms: int) -> int | None:
    """Parse `Retry-After`, seconds or an HTTP date (RFC 9110 section 10.2.3), into ms within
    bounds; None for neither.
    """
    seconds = _number(text.strip(), 10**_DIGITS_MAX)
    if seconds is not None:
        wait_ms = seconds * 1000
    else:
        try:
            then = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        if then.tzinfo is None:
            then = then.replace(tzinfo=UTC)
        wait_ms = int((then - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() * 1000)
    return min(max(wait_ms, RETRY_AFTER_MS_MIN), RETRY_AFTER_MS_MAX)


def _number(text: str, most: int) -> int | None:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return None
    value = int(text)
    return value if value <= most else None


class _Items(msgspec.Struct):
    items: list[Item]


_ITEMS = msgspec.json.Decoder(_Items)
MISSING = "the application's answer does not name it"


def judge_items(body: bytes, leases: Sequence[str]) -> tuple[list[SettleItem], bool]:
    """Read the body of a 2xx answer to a batch. Returns settles, with a retry for each lease that
    the body does not name, and whether the body was readable.
    """
    try:
        items = _ITEMS.decode(body).items
        readable = True
    except UNREADABLE:
        items, readable = [], False
    ours = set(leases)
    found = [each.item() for each in items if each.lease in ours]
    named = {each.lease for each in found}
    found += [
        SettleItem(each, SettleVerb.RETRY, reason=MISSING) for each in leases if each not in named
    ]
    return found, readable
