"""The parts of one subscription that operations work on."""

from __future__ import annotations

from dataclasses import dataclass

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.control.control import Control
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.engine.ownership.records import Records
from ackd.engine.retry.own_topic import OwnTopic
from ackd.engine.tracing.subscription_spans import SubscriptionSpans


@dataclass(frozen=True, slots=True)
class OperationParts:
    """Passed to every operation of a subscription. `retry_topic`: where redriven messages go."""

    state: SubscriptionState
    context: Context
    membership: Membership
    control: Control
    records: Records
    dead_letter_records: DeadLetterRecords
    retry_topic: OwnTopic
    tracing: SubscriptionSpans | None
