"""What is told of messages when traces are off: nothing.

Other parts call these methods whether traces are on or off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ackd.core.ids import LedgerKey
from ackd.core.lease_token import Token
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import RecordCall, RecordReply
from ackd.engine.base.live import Live
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.engine.partition.partition import Partition
from ackd.telemetry.spans import SpanEvent


class Untraced:
    """Writes no spans. `SubscriptionSpans` stands in for it when traces are on."""

    on = False

    def taken(self, partition: Partition, took_ms: int) -> None:
        """This sidecar took a partition and may deliver from now on; `took_ms`: how long that
        took.
        """

    def on_reply(self, partition: Partition, call: RecordCall, reply: RecordReply) -> None:
        """The store decided a call of an owned partition; its ledger has not applied it yet."""

    def expired(self, partition: Partition, found: Iterable[Sequence[int]]) -> None:
        """The ledger found lapsed leases (`take_lapsed`)."""

    def copied(
        self,
        event: SpanEvent,
        topic: str,
        partition: Partition,
        offset: int,
        generation: int,
        now_ms: int,
    ) -> None:
        """A copy is durable in the retry or dead-letter topic; the ledger does not know it yet.
        `now_ms` is the store's clock.
        """

    def committed(self, partition: Partition, offset: int) -> None:
        """The broker has the progress of a partition."""

    def settled(self, tokens: Sequence[Token], ops: Sequence[Settle], reply: RecordReply) -> None:
        """The store decided settles of one partition that this sidecar served."""

    def sought(self, key: LedgerKey, topic: str, epoch: int, offset: int) -> None:
        """A seek reset a partition: its messages start another life from here on."""

    def redriven(self, letters: Sequence[tuple[RetryCopy, str]], now_ms: int) -> None:
        """A redrive published these dead letters, each with the id that it had as one."""

    def changed(self, before: Live, after: Live) -> None:
        """This sidecar wrote live settings for a request."""

    def close(self) -> None:
        """The subscription stops."""
