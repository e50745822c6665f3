"""A subscription as the API shows it: settings in force, where each comes from, what holds it."""

from __future__ import annotations

from collections.abc import Mapping

from ackd.api.messages import SubscriptionView
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.control.control import Control, InForce
from ackd.engine.control.inspect import flat
from ackd.ports import Broker


def describe(
    name: str,
    configured: SubscriptionSettings,
    sources: Mapping[str, str],
    broker: Broker,
    control: Control | None,
    state: str,
) -> SubscriptionView:
    """Make the API's view. `control` None: the subscription is not built yet, so this shows its
    configuration.
    """
    force = InForce(configured) if control is None else control.in_force()
    return SubscriptionView(
        name=name,
        broker=configured.broker,
        adapter=broker.capabilities.name,
        topics=configured.topics,
        group=configured.group or name,
        state=state,
        payload=configured.payload,
        settings=flat(force.settings),
        sources={**sources, **force.sources},
        capabilities=broker.capabilities,
        live_version=force.live_version,
        pauses=[*force.pauses],
    )
