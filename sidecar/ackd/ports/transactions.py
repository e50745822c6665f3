"""What a broker with transactions reports. Optional for an adapter."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition


@runtime_checkable
class SeesTransactions(Protocol):
    """A consumer that knows how far open transactions hold its reads back."""

    async def log_end(self, partition: TopicPartition) -> int:
        """The end of the log including open transactions; `log_range` ends at the last stable
        offset. Raises BrokerError.
        """
