"""Who learns what becomes of a subscription's messages: the spans, if traces are on."""

from __future__ import annotations

from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.partition.owned import OwnedPartitions, Topics
from ackd.engine.tracing.untraced import Untraced


def observer_of(
    state: SubscriptionState,
    context: Context,
    partitions: OwnedPartitions,
    topics: Topics,
    retry_topic: str,
) -> Untraced:
    """Make the observer of one subscription; a sidecar without traces never loads the spans."""
    traces = context.traces
    if traces is None:
        return Untraced()
    from ackd.engine.tracing.subscription_spans import SubscriptionSpans  # noqa: PLC0415

    return SubscriptionSpans(state, context.clock, partitions, topics, retry_topic, traces)
