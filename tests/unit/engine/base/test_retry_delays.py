"""Delays of retries: by the list, or by the formula."""

from dataclasses import replace

import pytest

from ackd.config.subscription import RETRY_DELAYS_MS, SubscriptionSettings
from ackd.engine.base.retry_delays import retry_delay_ms

BASE = SubscriptionSettings(topics=("t",))


def test_the_list_goes_by_attempt_and_its_last_one_repeats() -> None:
    delays = [retry_delay_ms(BASE, attempt) for attempt in range(1, 17)]
    assert tuple(delays) == RETRY_DELAYS_MS
    assert retry_delay_ms(BASE, 17) == retry_delay_ms(BASE, 10_000) == RETRY_DELAYS_MS[-1]


@pytest.mark.parametrize(
    ("attempt", "delay_ms"), [(0, 100), (1, 100), (2, 300), (3, 900), (4, 2000), (65_535, 2000)]
)
def test_the_formula_grows_up_to_its_bound(attempt: int, delay_ms: int) -> None:
    formula = replace(
        BASE, retry_backoff_ms=100, retry_backoff_factor=3.0, retry_backoff_ms_max=2000
    )
    assert retry_delay_ms(formula, attempt) == delay_ms


def test_a_huge_factor_does_not_overflow() -> None:
    formula = replace(BASE, retry_backoff_ms=86_400_000, retry_backoff_factor=100.0)
    assert retry_delay_ms(formula, 10_000) == formula.retry_backoff_ms_max


def test_a_formula_with_a_small_factor_reaches_its_longest_delay() -> None:
    formula = replace(
        BASE, retry_backoff_ms=1_000, retry_backoff_factor=1.1, retry_backoff_ms_max=60_000
    )
    assert retry_delay_ms(formula, 40) == 41_144
    assert retry_delay_ms(formula, 50) == 60_000
