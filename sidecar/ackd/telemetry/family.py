"""One metric with all its series, bounded in number (I8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from prometheus_client import Gauge

from ackd.telemetry.counter import Counter
from ackd.telemetry.histogram import Histogram

SERIES_MAX = 2000
OTHER = "_other"

Kind = TypeVar("Kind", Counter, Gauge, Histogram)


class Family(Generic[Kind]):
    """One metric with all its series. `at` returns the series of some label values."""

    def __init__(
        self, parent: Kind, kind: str, name: str, text: str, labels: Sequence[str]
    ) -> None:
        self.kind = kind
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self._parent: Kind = parent
        self._series: dict[tuple[str, ...], Kind] = {}

    def at(self, *values: str) -> Kind:
        """Return the series of these label values, in the order of `labels`. Beyond `SERIES_MAX`
        series it is that of `_other`.
        """
        series = self._series.get(values)
        if series is None:
            series = self._make(values)
        return series

    def drop(self, *values: str) -> None:
        """Remove a series: the gauge of a partition that this sidecar no longer owns must not keep
        its value.
        """
        if self.labels and self._series.pop(values, None) is not None:
            self._parent.remove(*values)

    def _make(self, values: tuple[str, ...]) -> Kind:
        if len(values) != len(self.labels):
            message = f"{self.name} has the labels {self.labels}, got {len(values)} values"
            raise ValueError(message)
        if not self.labels:
            self._series[values] = self._parent
            return self._parent
        other = (OTHER,) * len(self.labels)
        if len(self._series) >= SERIES_MAX and values != other:
            return self.at(*other)
        series: Kind = self._parent.labels(*map(str, values))
        self._series[values] = series
        return series
