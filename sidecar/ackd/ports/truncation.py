"""What a broker tells whose logs can lose their newest messages. An adapter may lack it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition


@runtime_checkable
class SeesTruncation(Protocol):
    """A consumer that notices when messages which were read are gone, and says so (rule R1).

    Its `Fetched` events have leader epochs. One event has records of one epoch, and epochs grow
    with the offsets.
    """

    def expect(self, partition: TopicPartition, end: int, leader_epoch: int) -> None:
        """All below `end` was read before, its last message was of this leader epoch, or of an
        earlier one. `end` 0: nothing is known.

        The next `fetch_from` looks whether that is still so, before any record comes. If not, it
        says `OutOfRange` with the `cut`.
        """
