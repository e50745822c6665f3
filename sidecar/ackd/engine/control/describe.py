"""A subscription as the API shows it: settings in force, where each comes from, what holds it."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.api.messages import SubscriptionView
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.control.inspect import flat
from ackd.engine.subscription import Subscription
from ackd.ports import Broker


def describe(
    name: str,
    configured: SubscriptionSettings,
    sources: Mapping[str, str],
    broker: Broker,
    subscription: Subscription | None,
    state: str,
) -> SubscriptionView:
    """`subscription` None: it has not been built yet, so it is as configured."""
    settings, live_version = configured, 0
    if subscription is not None:
        settings, live_version = subscription.settings, subscription.control.live.version
        sources = {**sources, **subscription.control.sources()}
    return SubscriptionView(
        name=name,
        broker=configured.broker,
        adapter=broker.capabilities.name,
        topics=configured.topics,
        group=configured.group or name,
        state=state,
        payload=configured.payload,
        settings=flat(settings),
        sources=sources,
        capabilities=broker.capabilities,
        live_version=live_version,
        pauses=[] if subscription is None else subscription.control.pauses(),
    )
