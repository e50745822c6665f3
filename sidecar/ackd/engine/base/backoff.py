"""How long a failed message waits for its next delivery."""

from __future__ import annotations

from ackd.config.subscription import SubscriptionSettings

GROWTH_MAX = 30
"""Steps after which a formula's delay stops growing: a larger power could overflow."""


def retry_delay_ms(settings: SubscriptionSettings, attempt: int) -> int:
    """The delay after delivery number `attempt` (1 = the first) failed, in ms."""
    again = max(attempt - 1, 0)
    first_ms = settings.retry_backoff_ms
    if not first_ms:
        delays = settings.retry_delays_ms
        return delays[min(again, len(delays) - 1)]
    grown = settings.retry_backoff_factor ** min(again, GROWTH_MAX)
    return int(min(first_ms * grown, settings.retry_backoff_ms_max))


def longest_delay_ms(settings: SubscriptionSettings) -> int:
    """Return the longest delay of the schedule, in ms."""
    if settings.retry_backoff_ms:
        return settings.retry_backoff_ms_max
    return max(settings.retry_delays_ms)
