"""A subscription as the API shows it: settings in force, where each comes from, what holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ackd.api.messages import SubscriptionView
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.control.control import Control
from ackd.engine.control.inspect import flat
from ackd.ports import Broker


class Described(Protocol):
    """The parts of a subscription that are shown."""

    state: SubscriptionState
    control: Control


def describe(
    name: str,
    configured: SubscriptionSettings,
    sources: Mapping[str, str],
    broker: Broker,
    subscription: Described | None,
    state: str,
) -> SubscriptionView:
    """The values for the API. `subscription` None: it is not built yet, so show its
    configuration.
    """
    settings, live_version = configured, 0
    if subscription is not None:
        settings, live_version = subscription.state.settings, subscription.state.live.version
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
