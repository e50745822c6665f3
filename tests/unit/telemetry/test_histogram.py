"""The own histogram says what the client library's says, for the same values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Reference

from ackd.telemetry.histogram import Histogram

BOUNDS = (0.001, 0.25, 1, 30)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0, 0.001, 0.2, 1, 1.5, 64]))))
def test_same_exposition_as_the_library(values: list[tuple[str, float]]) -> None:
    """Buckets include their upper end; the last one is infinite; sums and counts agree."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = Histogram("h_seconds", "A text.", ("of",), BOUNDS)
    ours.register(mine)
    reference = Reference("h_seconds", "A text.", ("of",), registry=theirs, buckets=BOUNDS)
    for label, value in values:
        mine.labels(label).observe(value)
        reference.labels(label).observe(value)
    assert generate_latest(ours) == _without_created(generate_latest(theirs))


def _without_created(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if b"_created" not in line)


def test_many_equal_values_are_one_observation() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("h_seconds", "A text.", (), BOUNDS)
    registry.register(histogram)
    histogram.observe(0.5, times=100_000)
    assert registry.get_sample_value("h_seconds_count") == 100_000
    assert registry.get_sample_value("h_seconds_sum") == 50_000
    assert registry.get_sample_value("h_seconds_bucket", {"le": "0.25"}) == 0
    assert registry.get_sample_value("h_seconds_bucket", {"le": "1.0"}) == 100_000


def test_a_block_is_timed_also_when_it_fails() -> None:
    histogram = Histogram("h_seconds", "A text.", ("of",), BOUNDS)
    with pytest.raises(KeyError), histogram.labels("a").time():
        raise KeyError
    assert histogram.labels("a").buckets()[-1] == ("+Inf", 1.0)
    histogram.remove("a")
    assert not next(iter(histogram.collect())).samples
