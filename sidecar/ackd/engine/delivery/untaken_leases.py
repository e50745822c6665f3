"""Leases that no caller holds: they are released, so that their messages need not expire (R21)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ackd.core.lease_token import BadTokenError, UnknownKeyError, subscription_hash
from ackd.core.record.operations import Settle
from ackd.core.record.protocol import CallStatus, RecordReply
from ackd.core.record.transitions import Verb
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.delivery.waits_elsewhere import WaitsElsewhere
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.errors import StoreError


class UntakenLeases:
    """Gives leases of one subscription back, whoever granted them."""

    def __init__(
        self,
        state: SubscriptionState,
        context: Context,
        partitions: OwnedPartitions,
        elsewhere: WaitsElsewhere,
    ) -> None:
        self._context = context
        self._hash = subscription_hash(state.name)
        self._partitions = partitions
        self._elsewhere = elsewhere

    def give_back(self, leases: Sequence[str]) -> None:
        """Release them without counting an attempt. If that fails, they expire.

        A sidecar that was frozen may have lost the partition without knowing it yet: the store
        refuses what it says as the owner. Then the leases are released as those of others are.
        """
        own: dict[Partition, list[tuple[str, Settle]]] = {}
        others: list[str] = []
        for lease in leases:
            try:
                token = self._context.keys.open(lease)
            except (BadTokenError, UnknownKeyError):
                continue  # of a sidecar that had another key after a loss of the store's data (R27)
            if token.subscription != self._hash:
                continue
            partition = self._partitions.by_ledger.get((token.topic_id, token.partition))
            if partition is None:
                others.append(lease)
                continue
            release = Settle(
                Verb.RELEASE, token.offset, token.fence, token.rollback_epoch, token.attempt
            )
            own.setdefault(partition, []).append((lease, release))
        for partition, some in own.items():
            of_partition = [lease for lease, _ in some]
            partition.tell(
                *(release for _, release in some), on_answer=partial(self._answered, of_partition)
            )
        if others:
            self._elsewhere.give_back(others)

    def _answered(self, leases: Sequence[str], answer: RecordReply | StoreError, _: int) -> None:
        if isinstance(answer, RecordReply) and answer.verdict is CallStatus.FENCED:
            self._elsewhere.give_back(leases)
