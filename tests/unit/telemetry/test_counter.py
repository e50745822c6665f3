"""The own counter says what the client library's says, for the same values."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as Reference

from ackd.telemetry.counter import Counter


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, 0, 3, 0.5, 1_000_000]))))
def test_same_exposition_as_the_library(values: list[tuple[str, float]]) -> None:
    """The name gets its suffix; series that were never asked for are not there."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = Counter("c_things", "A text.", ("of",))
    ours.register(mine)
    reference = Reference("c_things", "A text.", ("of",), registry=theirs)
    for label, value in values:
        mine.labels(label).inc(value)
        reference.labels(label).inc(value)
    assert generate_latest(ours) == _without_created(generate_latest(theirs))


def _without_created(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if b"_created" not in line)


def test_without_labels_there_is_one_series_from_the_start() -> None:
    registry = CollectorRegistry()
    counter = Counter("c_things", "A text.", ())
    registry.register(counter)
    assert registry.get_sample_value("c_things_total") == 0
    counter.inc()
    assert registry.get_sample_value("c_things_total") == 1
