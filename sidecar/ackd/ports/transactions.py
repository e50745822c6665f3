"""What a broker with transactions tells beside what serving needs. An adapter may lack it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ackd.core.ids import TopicPartition


@runtime_checkable
class SeesTransactions(Protocol):
    """A consumer that knows what open transactions hide."""

    async def log_end(self, partition: TopicPartition) -> int:
        """The end of the log with everything in it; that of `log_range` is where this consumer is
        held. Raises BrokerError.
        """
