"""Gauges: values that are cheaper to read at each scrape than to keep up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary, WeakMethod

from ackd import __version__
from ackd.api.messages import Reason
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.cluster.membership import Membership
from ackd.engine.control.control import Control
from ackd.engine.control.stable_offset_lag import StableOffsetLag
from ackd.engine.delivery.circuit_breaker import CircuitBreaker
from ackd.engine.delivery.dispatcher import Dispatcher
from ackd.engine.delivery.window_pressure import WindowPressure
from ackd.engine.partition.owned import OwnedPartitions
from ackd.engine.partition.partition import Partition
from ackd.engine.retry.body_spill import BodySpill
from ackd.engine.retry.copier import Copier
from ackd.errors import BrokerError
from ackd.ports import Broker, Clock
from ackd.store.measured import MeasuredStore
from ackd.telemetry import zeros
from ackd.telemetry.metrics import Metrics

LOOK_MS = 1_000
END_MS = 10_000
"""How old the end of a log may be in `ackd_lag_messages`; without a backlog, fetching reports
it.
"""

Series = tuple[str, str, str]


class GaugeParts(Protocol):
    """The parts of a subscription that gauges read."""

    state: SubscriptionState
    partitions: OwnedPartitions
    membership: Membership
    control: Control
    dispatcher: Dispatcher
    breaker: CircuitBreaker
    window_pressure: WindowPressure
    stable_offset_lag: StableOffsetLag
    bodies: BodySpill
    send_back: Copier
    dead_letters: Copier


class Gauges:
    """Fills the gauges of one sidecar. The mappings are the runtime's own and change with it."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Clock,
        store: MeasuredStore,
        brokers: Mapping[str, Broker],
        connected: Mapping[str, asyncio.Event],
        subscriptions: Mapping[str, GaugeParts],
        readiness: Callable[[], Sequence[Reason]],
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._store = store
        self._brokers = brokers
        self._connected = connected
        self._subscriptions = subscriptions
        self._readiness = readiness
        self._reasons: set[str] = set()
        self._shown: set[Series] = set()
        self._begun: set[str] = set()
        self._end_asked_ms: WeakKeyDictionary[Partition, int] = WeakKeyDictionary()

    def attach(self, identity: str) -> None:
        """Be called before each scrape, for as long as this object lives."""
        self._metrics.info.at(__version__, identity).set(1)
        fill = WeakMethod(self.fill)

        def before() -> None:
            alive = fill()
            if alive is not None:
                alive()

        self._metrics.before_scrape(before)

    async def run(self) -> None:
        """Ask the broker regularly where the logs end, as a backlog is not fetched yet. Until
        cancelled.
        """
        while True:
            for subscription in list(self._subscriptions.values()):
                await self._ask_ends(subscription)
            await asyncio.sleep(LOOK_MS / 1000)

    async def _ask_ends(self, subscription: GaugeParts) -> None:
        for partition in list(subscription.partitions.owned.values()):
            now_ms = self._clock.monotonic_ms()
            if now_ms < self._end_asked_ms.get(partition, -END_MS) + END_MS:
                continue
            self._end_asked_ms[partition] = now_ms
            try:
                _, end = await subscription.state.consumer.log_range(partition.tp)
                await subscription.stable_offset_lag.look(
                    subscription.state.consumer, partition, end
                )
            except BrokerError:
                return
            partition.end = max(partition.end, end)

    # --- at a scrape

    def fill(self) -> None:
        """Set every gauge, and drop the series of partitions that are no longer owned."""
        self._metrics.store_up.at().set(self._store.up)
        for subscription in self._subscriptions.values():
            self._metrics.clock_skew.at().set(subscription.control.skew_ms() / 1000)
        for name, broker in self._brokers.items():
            up = self._connected[name].is_set() and not broker.conditions()
            self._metrics.broker_up.at(name).set(up)
        self._tell_readiness()
        shown: set[Series] = set()
        for name, subscription in self._subscriptions.items():
            self._subscription(name, subscription)
            for partition in subscription.partitions.owned.values():
                shown.add(series := self._partition(name, partition))
                held_ms = subscription.stable_offset_lag.held_ms(partition)
                self._metrics.transaction_held.at(*series).set(held_ms / 1000)
        for gone in self._shown - shown:
            for family in (
                self._metrics.watermark,
                self._metrics.oldest_unfinished,
                self._metrics.lag,
                self._metrics.transaction_held,
            ):
                family.drop(*gone)
        self._shown = shown

    def _tell_readiness(self) -> None:
        """Set readiness; parts that come and go (`draining`) leave no series behind."""
        metrics, reasons = self._metrics, self._readiness()
        for reason in reasons:
            metrics.readiness.at(reason.name).set(reason.ok)
            metrics.readiness_warnings.at(reason.name).set(reason.ok and bool(reason.detail))
        names = {reason.name for reason in reasons}
        for gone in self._reasons - names:
            metrics.readiness.drop(gone)
            metrics.readiness_warnings.drop(gone)
        self._reasons = names

    def _subscription(self, name: str, subscription: GaugeParts) -> None:
        metrics, dispatcher = self._metrics, subscription.dispatcher
        if name not in self._begun:
            self._begun.add(name)
            zeros.begin(metrics, name)
        ready, size = subscription.partitions.held()
        metrics.ready.at(name).set(ready)
        metrics.paused.at(name).set(subscription.state.paused)
        metrics.circuit_breaker_open.at(name).set(subscription.breaker.on)
        metrics.window_bytes.at(name).set(size)
        metrics.window_used_ratio.at(name).set(subscription.window_pressure.share())
        metrics.waiting.at(name).set(dispatcher.waiting())
        metrics.in_flight.at(name).set(subscription.partitions.leased())
        metrics.waiters.at(name).set(dispatcher.line.waiting())
        metrics.copies_in_progress.at(name).set(
            len(subscription.send_back) + len(subscription.dead_letters)
        )
        metrics.retry_topic_messages.at(name).set(
            sum(
                len(p.ledger.entries)
                for p in subscription.partitions.owned.values()
                if p.ledger.holds_copies
            )
        )
        metrics.spilled_bytes.at(name).set(subscription.bodies.spill.taken)
        metrics.partitions_owned.at(name).set(len(subscription.partitions.owned))
        metrics.settings_differ.at(name).set(len(subscription.membership.drift.others))

    def _partition(self, name: str, partition: Partition) -> Series:
        ledger = partition.ledger
        series = (name, partition.tp.topic, str(partition.tp.partition))
        self._metrics.watermark.at(*series).set(ledger.watermark)
        if partition.end >= 0:
            self._metrics.lag.at(*series).set(max(partition.end - ledger.watermark, 0))
        # 3 ms for 100,000 entries: not worth an order of its own.
        first_s = min((e.first_s for e in ledger.entries.values() if e.first_s), default=0)
        age_s = max(self._clock.wall_ms() / 1000 - first_s, 0) if first_s else 0
        self._metrics.oldest_unfinished.at(*series).set(age_s)
        return series
