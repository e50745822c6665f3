"""State that every part of one subscription shares. It imports no part, so parts need not know each
other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.copy_keys import CopyKeys
from ackd.engine.base.live import Live
from ackd.ports import (
    Broker,
    BrokerPositions,
    BrokerSideAcks,
    Condition,
    Consumer,
    HasPositions,
)


@dataclass(slots=True)
class Health:
    """What readiness reports of a subscription."""

    joined: bool = False
    assigned_once: bool = False
    superseded: bool = False
    store_ok: bool = False
    detail: str = ""

    def group_joined(self) -> None:
        self.joined = True

    def group_assigned(self) -> None:
        self.assigned_once = True

    def identity_taken(self, *, taken: bool) -> None:
        """Another process with the same identity has taken over, or has stopped."""
        self.superseded = taken

    def store_answered(self) -> None:
        self.store_ok = True

    def store_failed(self, detail: str) -> None:
        self.store_ok, self.detail = False, detail

    def fails(self, detail: str) -> None:
        """Keep what fails and is tried again; readiness shows it."""
        self.detail = detail

    def works(self) -> None:
        """Forget the failure: the next try succeeded."""
        self.detail = ""


class Signal:
    """A notification that lower parts send and higher parts act on, without knowing each other.

    The subscription connects the listeners once; a signal calls them in that order.
    """

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[], None], ...] = ()

    def connect(self, *listeners: Callable[[], None]) -> None:
        """Call these listeners, too, after those that are connected already."""
        self._listeners += listeners

    def __call__(self) -> None:
        for listener in self._listeners:
            listener()


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of one subscription.

    `deliver`: the dispatcher may serve waiting receives. `room`: the memory in use has changed, so
    fetching may have to pause or resume. `timers`: deadlines must be checked again. `beat`: other
    sidecars should learn at once what has changed here. `policies`: the rules of the ledgers have
    changed. `members`: a heartbeat has read what the other sidecars own.
    """

    deliver: Signal = field(default_factory=Signal)
    room: Signal = field(default_factory=Signal)
    timers: Signal = field(default_factory=Signal)
    beat: Signal = field(default_factory=Signal)
    policies: Signal = field(default_factory=Signal)
    members: Signal = field(default_factory=Signal)


# tidy: long-class attributes=14 -- what all parts of a subscription share
@dataclass(slots=True, eq=False)
class SubscriptionState:
    """One subscription on this sidecar.

    `configured`: the settings of the file; `settings`: those in force, with what operators changed.
    `cluster`: of the broker, empty until it is known; `scope`: names the subscription in the store.
    `live`: what operators have changed. `paused`: a pause holds deliveries to this sidecar's
    application back; `paused_everywhere`: one holds all deliveries back. `conditions`: by code.
    """

    name: str
    configured: SubscriptionSettings
    broker: Broker
    consumer: Consumer
    scope: str
    cluster: str = ""
    live: Live = field(default_factory=Live)
    paused: bool = False
    paused_everywhere: bool = False
    health: Health = field(default_factory=Health)
    conditions: dict[str, Condition] = field(default_factory=dict)
    signals: Signals = field(default_factory=Signals)
    copy_keys: CopyKeys = field(default_factory=CopyKeys)
    settings: SubscriptionSettings = field(init=False)

    def __post_init__(self) -> None:
        self.settings = self.configured

    @property
    def broker_side_acks(self) -> BrokerSideAcks | None:
        """The consumer, if its broker keeps individual acks; else None."""
        return self.consumer if isinstance(self.consumer, BrokerSideAcks) else None

    @property
    def broker_positions(self) -> BrokerPositions | None:
        """Where a broker with individual acks is in its queues, if that can be asked or moved."""
        return self.consumer.broker_positions if isinstance(self.consumer, HasPositions) else None

    def go_by(self, live: Live, settings: SubscriptionSettings) -> None:
        """Take over what operators have changed, and the settings that follow from it."""
        self.live, self.settings = live, settings

    def hold_deliveries(self, *, here: bool, everywhere: bool) -> None:
        """Note which deliveries a pause holds back now."""
        self.paused, self.paused_everywhere = here, everywhere

    def found_cluster(self, cluster: str) -> None:
        """The broker has said of which cluster it is."""
        self.cluster = cluster

    def report(self, condition: Condition) -> bool:
        """Let readiness report a condition until it is cleared; False if it did already."""
        known = condition.code in self.conditions
        self.conditions[condition.code] = condition
        return not known

    def clear(self, code: str) -> bool:
        """Report a condition no more; False if it was not reported."""
        return self.conditions.pop(code, None) is not None
