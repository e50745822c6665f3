"""Waits between tries grow by a factor up to a ceiling, and spread around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.core.backoff import Backoff


def test_waits_grow_up_to_the_ceiling() -> None:
    backoff = Backoff(500, 30_000)
    waits = [backoff.delay_ms(failures) for failures in range(1, 10)]
    assert waits == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]


def test_the_first_wait_is_that_of_the_first_failure() -> None:
    assert Backoff(500, 30_000).delay_ms(0) == 500


def test_a_constant_wait_stays() -> None:
    assert {Backoff.constant(250).delay_ms(failures) for failures in (1, 2, 1_000)} == {250}


def test_a_factor_of_one_does_not_grow() -> None:
    assert Backoff(100, 9_000, factor=1.0).delay_ms(10_000) == 100


@pytest.mark.parametrize("factor", [1.001, 1.5, 2.0, 100.0])
def test_however_many_failures_there_were(factor: float) -> None:
    assert Backoff(1, 60_000, factor).delay_ms(1_000_000) == 60_000


@pytest.mark.parametrize(("random", "wait_ms"), [(0.0, 800), (0.5, 1_000), (1.0, 1_200)])
def test_jitter_spreads_to_both_sides(random: float, wait_ms: int) -> None:
    assert Backoff(1_000, 1_000, jitter=0.2).delay_ms(5, lambda: random) == wait_ms


@given(
    base_ms=st.integers(1, 100_000),
    growth=st.floats(1.0, 100.0),
    jitter=st.floats(0.0, 0.5),
    random=st.floats(0.0, 1.0),
    failures=st.integers(1, 2_000),
)
def test_bounds(base_ms: int, growth: float, jitter: float, random: float, failures: int) -> None:
    ceiling_ms = base_ms * 20
    backoff = Backoff(base_ms, ceiling_ms, growth, jitter)
    wait_ms = backoff.delay_ms(failures, lambda: random)
    assert base_ms * (1 - jitter) - 1 <= wait_ms <= ceiling_ms * (1 + jitter) + 1
    assert backoff.delay_ms(failures) <= backoff.delay_ms(failures + 1)
