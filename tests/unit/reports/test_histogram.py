"""Log histograms: bounds, error, and that they add up."""

from hypothesis import given
from hypothesis import strategies as st

from ackd_reports import histogram

DURATIONS = st.integers(0, 10**13)


@given(st.integers(0, 2**36))
def test_a_bucket_holds_its_duration(duration: int) -> None:
    index = histogram.bucket(duration)
    if index == histogram.ZERO:
        assert duration == 0
    else:
        # Exact in whole numbers: 2^(b/32) <= v < 2^((b+1)/32), both sides to the power of 32.
        assert 2**index <= duration**32 < 2 ** (index + 1)


def test_powers_of_two_lie_on_a_bound() -> None:
    for power in range(60):
        assert histogram.bucket(2**power) == power * histogram.STEPS


@given(st.lists(DURATIONS, min_size=1), st.sampled_from((0.5, 0.95, 0.99, 0.999)))
def test_a_percentile_is_off_by_the_stated_error_at_most(values: list[int], share: float) -> None:
    cells = histogram.merged([(histogram.bucket(value), 1) for value in values])
    found = histogram.percentile_us(cells, share)
    exact = next(v for n, v in enumerate(sorted(values), 1) if n >= share * len(values) - 1e-9)
    assert found is not None
    assert abs(found - exact) <= histogram.ERROR * exact * (1 + 1e-9)


@given(st.lists(st.lists(DURATIONS)))
def test_parts_add_up_to_the_whole(parts: list[list[int]]) -> None:
    def cells(values: list[int]) -> list[tuple[int, int]]:
        return histogram.merged([(histogram.bucket(value), 1) for value in values])

    assert histogram.merged(*map(cells, parts)) == cells([v for part in parts for v in part])


def test_nothing_has_no_percentile() -> None:
    assert histogram.percentile_us([], 0.5) is None
