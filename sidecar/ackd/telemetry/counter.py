"""A counter for the event loop: one addition.

The client library's counter takes a lock and checks twice for labels, which makes four calls for an
addition, and a single receive and settle counts four times. Only the event loop's thread may count
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class Counter(Collector):
    """A counter and, with labels, its series. Its value never falls."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._value = 0.0
        self._series: dict[tuple[str, ...], Counter] = {} if labels else {(): self}

    def labels(self, *values: str) -> Counter:
        """Return the series of these label values; make it if it is new."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = Counter(self._name, self._text, ())
        return series

    def remove(self, *values: str) -> None:
        del self._series[values]

    def inc(self, times: float = 1) -> None:
        self._value += times

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return the samples for a scrape."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, series in self._series.items():
            family.add_metric(values, series.value)
        yield family

    @property
    def value(self) -> float:
        return self._value
