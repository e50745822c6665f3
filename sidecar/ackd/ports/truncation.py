"""What a broker reports whose logs can lose their newest messages. Optional for an adapter."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition


@runtime_checkable
class SeesTruncation(Protocol):
    """A consumer that notices and reports that messages it has read are gone (rule R1).

    Its `Fetched` events have leader epochs. All records of an event have the same epoch, and epochs
    grow with the offsets.
    """

    def expect(self, partition: TopicPartition, end: int, leader_epoch: int) -> None:
        """The engine has read everything below `end` before; the last message had this leader epoch
        or an earlier one. `end` 0: nothing is known.

        The next `fetch_from` checks that this is still so before it returns any record. If not, the
        consumer reports `OutOfRange` with the `cut`.
        """
