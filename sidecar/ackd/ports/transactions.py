"""What a broker with transactions reports beside what serving needs. An adapter may lack it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition


@runtime_checkable
class SeesTransactions(Protocol):
    """A consumer that knows what open transactions hide."""

    async def log_end(self, partition: TopicPartition) -> int:
        """The end of the log with open transactions; `log_range` returns where the broker holds
        this consumer. Raises BrokerError.
        """
