"""Drops ackd's own copies from topics that a pattern matched: reading them would be a loop (rule
R25).

No pattern matches the names of ackd's own topics. A mirror may rename them (with a prefix for the
source cluster, say), so this file recognizes copies by their header as well.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ackd.engine.partition.copy_headers import ORIGIN
from ackd.ports import Fetched, Record
from ackd.telemetry.metrics import Metrics

LOG = logging.getLogger("ackd.engine")


class OwnCopyFilter:
    """The filter of one subscription. `own`: its own topics, whose copies it reads on purpose."""

    def __init__(
        self, name: str, topics: Collection[str], own: Collection[str], metrics: Metrics
    ) -> None:
        self._name = name
        self._metrics = metrics
        # The configuration names these topics in full, so their records are wanted as they are.
        self._trusted = frozenset((*topics, *own))
        self._patterns = any(each.startswith("^") for each in topics)
        self._reported: set[str] = set()

    def sift(self, event: Fetched) -> Sequence[Record]:
        """The event's records without copies; each dropped copy leaves a gap, as a compacted record
        does.
        """
        topic = event.partition.topic
        if not self._patterns or topic in self._trusted:
            return event.records
        kept = [each for each in event.records if not is_copy(each)]
        left_out = len(event.records) - len(kept)
        if left_out:
            self._metrics.copies_ignored.at(self._name).inc(left_out)
            if topic not in self._reported:
                self._reported.add(topic)
                LOG.warning(
                    "%s: the topic %s has copies that ackd made, and ackd does not deliver them; "
                    "leave the topic out of the pattern",
                    self._name,
                    topic,
                )
        return kept


def is_copy(record: Record) -> bool:
    """Whether ackd wrote this record to carry another message."""
    return any(name == ORIGIN for name, _ in record.headers)
