"""A histogram for the event loop: one look-up and two additions an observation.

The client library's own takes a lock for each bucket and each sum, since it may be fed from any
thread. Here only the event loop's thread feeds, and many equal values count as one observation
with `times`: 100,000 leases that end at once must not hold up the loop.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Histogram(Collector):
    """A histogram and, with labels, its series. `bounds`: upper ends of the buckets, ascending."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._series: dict[tuple[str, ...], Histogram] = {} if labels else {(): self}

    def labels(self, *values: str) -> Histogram:
        """Return the series of these label values; make it if it is new."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Histogram(self._name, self._text, (), self._bounds)
        return series

    def remove(self, *values: str) -> None:
        del self._series[values]

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @contextmanager
    def time(self) -> Iterator[None]:
        """Count the seconds that the block takes, whether it succeeds or not."""
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - start_s)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return the samples for a scrape."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, series in self._series.items():
            family.add_metric(values, series.buckets(), series.sum)
        yield family

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper end as text, count of values up to it) of each bucket."""
        ends = [*map(floatToGoString, self._bounds), "+Inf"]
        return list(zip(ends, map(float, accumulate(self._counts)), strict=True))

    @property
    def sum(self) -> float:
        return self._sum
