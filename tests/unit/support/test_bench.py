"""The stopwatch of `make bench` looks at methods that exist: nobody runs it for each change."""

from tests.bench.traced import Stopwatch, fetching, granting


def test_what_the_stopwatch_looks_at_is_there() -> None:
    clock = Stopwatch()
    for kind, name, _ in (*fetching(clock), *granting(clock)):
        assert callable(getattr(kind, name, None)), f"{kind.__name__}.{name}"
