"""Copies of ackd's in topics that a pattern took in: reading them would be a loop (rule R25).

By name a pattern never takes in ackd's own topics. A mirror may give them other names (a prefix for
the cluster they come from, say), so copies are also known by their header.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ackd.engine.partition.copy_headers import ORIGIN
from ackd.ports import Fetched, Record
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.engine")


class OwnCopyFilter:
    """Of one subscription. `own`: its own topics, in which copies are what is wanted."""

    def __init__(
        self, name: str, topics: Collection[str], own: Collection[str], metrics: Metrics
    ) -> None:
        self._name = name
        self._metrics = metrics
        # What is named in full is wanted as it is.
        self._trusted = frozenset((*topics, *own))
        self._patterns = any(each.startswith("^") for each in topics)
        self._told: set[str] = set()

    def sift(self, event: Fetched) -> Sequence[Record]:
        """The records without copies; what is left out is a hole like a compacted record."""
        topic = event.partition.topic
        if not self._patterns or topic in self._trusted:
            return event.records
        kept = [each for each in event.records if not is_copy(each)]
        left_out = len(event.records) - len(kept)
        if left_out:
            self._metrics.copies_ignored.at(self._name).inc(left_out)
            if topic not in self._told:
                self._told.add(topic)
                LOG.warning(
                    "%s: %s holds copies of ackd's; they are passed over", self._name, topic
                )
        return kept


def is_copy(record: Record) -> bool:
    """Whether ackd has made it to carry another message."""
    return any(name == ORIGIN for name, _ in record.headers)
