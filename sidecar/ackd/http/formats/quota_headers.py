"""The fields `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10): which
bounds there are for publishers, and what is left of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ackd.api.quotas import Quota
from ackd.errors import AckdError


def rate_limit_headers(quotas: Iterable[Quota]) -> list[tuple[str, str]]:
    """Make both fields; nothing without quotas."""
    listed = list(quotas)
    if not listed:
        return []
    return [
        ("RateLimit-Policy", ", ".join(map(_policy, listed))),
        ("RateLimit", ", ".join(map(_left, listed))),
    ]


def quotas_of(error: AckdError) -> list[Quota]:
    """The quotas that an error has among its facts."""
    found = error.facts.get("quotas")
    return [each for each in found if isinstance(each, Quota)] if isinstance(found, list) else []


def _policy(quota: Quota) -> str:
    window = f";w={_seconds(quota.window_ms)}" if quota.window_ms else ""
    return f'"{quota.name}";q={quota.most};qu="{quota.unit}"{window}'


def _left(quota: Quota) -> str:
    reset = f";t={_seconds(quota.reset_ms)}" if quota.reset_ms else ""
    return f'"{quota.name}";r={quota.left}{reset}'


def _seconds(ms: int) -> int:
    """Whole seconds, rounded up: the fields know no smaller unit."""
    return -(-ms // 1000)
