"""The parts of all subscriptions of a sidecar, for who works with all of them.

`subscription.py` writes these tables when it has built a subscription, and again when it has built
it anew. Everybody else is given the table of the parts that it works with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from ackd.engine.control.cancel import Cancels
from ackd.engine.control.control import Control
from ackd.engine.control.group_views import GroupViews
from ackd.engine.control.inspect import Inspector
from ackd.engine.control.lag import Lag
from ackd.engine.control.partition_gauges import PartitionGauges
from ackd.engine.control.readiness import SubscriptionReadiness
from ackd.engine.control.subscription_gauges import SubscriptionGauges
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.receive_attempts import ReceiveAttempts
from ackd.engine.departure import Departure
from ackd.engine.operations.subscription_dead_letters import SubscriptionDeadLetters
from ackd.engine.operations.subscription_seeks import SubscriptionSeeks
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.settlement.subscription_settles import SubscriptionSettles
from ackd.errors import UnknownSubscriptionError

Part = TypeVar("Part")


class ByName(dict[str, Part]):
    """Parts of one kind, by the name of their subscription."""

    def __missing__(self, name: str) -> Part:
        raise UnknownSubscriptionError(f"there is no subscription {name!r} here")


@dataclass(frozen=True, slots=True)
class PartsByName:
    """A table for each kind of part that others work with."""

    partitions: ByName[OwnedPartitions] = field(default_factory=ByName)
    dispatchers: ByName[Dispatcher] = field(default_factory=ByName)
    departures: ByName[Departure] = field(default_factory=ByName)
    attempts: ByName[ReceiveAttempts] = field(default_factory=ByName)
    dead_letters: ByName[SubscriptionDeadLetters] = field(default_factory=ByName)
    seeks: ByName[SubscriptionSeeks] = field(default_factory=ByName)
    settles: ByName[SubscriptionSettles] = field(default_factory=ByName)
    controls: ByName[Control] = field(default_factory=ByName)
    cancels: ByName[Cancels] = field(default_factory=ByName)
    inspectors: ByName[Inspector] = field(default_factory=ByName)
    groups: ByName[GroupViews] = field(default_factory=ByName)
    lags: ByName[Lag] = field(default_factory=ByName)
    readiness: ByName[SubscriptionReadiness] = field(default_factory=ByName)
    gauges: ByName[SubscriptionGauges] = field(default_factory=ByName)
    partition_gauges: ByName[PartitionGauges] = field(default_factory=ByName)
