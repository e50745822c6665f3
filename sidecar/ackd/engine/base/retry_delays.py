"""How long a failed message waits for its next delivery."""

from __future__ import annotations

from ackd.config.subscription import SubscriptionSettings
from ackd.core.backoff import Backoff


def retry_delay_ms(settings: SubscriptionSettings, attempt: int) -> int:
    """The delay after delivery number `attempt` (1 = the first) failed, in ms."""
    if settings.retry_backoff_ms:
        return _formula(settings).delay_ms(attempt)
    delays = settings.retry_delays_ms
    return delays[min(max(attempt - 1, 0), len(delays) - 1)]


def _formula(settings: SubscriptionSettings) -> Backoff:
    return Backoff(
        settings.retry_backoff_ms, settings.retry_backoff_ms_max, settings.retry_backoff_factor
    )
