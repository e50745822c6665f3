"""Gauges: values that are cheaper to read at each scrape than to keep up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakMethod

from ackd import __version__
from ackd.api.messages import Reason
from ackd.engine.control.control import Control
from ackd.engine.control.partition_gauges import PartitionGauges, Series
from ackd.engine.control.subscription_gauges import SubscriptionGauges
from ackd.ports import Broker
from ackd.store.measured import MeasuredStore
from ackd.telemetry import zeros
from ackd.telemetry.metrics import Metrics

LOOK_MS = 1_000


class Gauges:
    """Fills the gauges of one sidecar. The mappings are the runtime's own and change with it."""

    def __init__(
        self,
        metrics: Metrics,
        store: MeasuredStore,
        brokers: Mapping[str, Broker],
        connected: Mapping[str, asyncio.Event],
        subscriptions: Mapping[str, SubscriptionGauges],
        partitions: Mapping[str, PartitionGauges],
        controls: Mapping[str, Control],
        readiness: Callable[[], Sequence[Reason]],
        unreachable: Callable[[], int],
    ) -> None:
        """`unreachable`: how many sidecars this one needs and can't reach."""
        self._metrics = metrics
        self._store = store
        self._brokers = brokers
        self._connected = connected
        self._subscriptions = subscriptions
        self._partitions = partitions
        self._controls = controls
        self._readiness = readiness
        self._unreachable = unreachable
        self._reasons: set[str] = set()
        self._shown: set[Series] = set()
        self._begun: set[str] = set()

    def attach(self, identity: str) -> None:
        """Have `fill` called before each scrape, as long as this object lives."""
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
            for each in list(self._partitions.values()):
                await each.ask_ends()
            await asyncio.sleep(LOOK_MS / 1000)

    # --- at a scrape

    def fill(self) -> None:
        """Set every gauge, and drop the series of partitions that are no longer owned."""
        self._metrics.store_up.at().set(self._store.up)
        for control in self._controls.values():
            self._metrics.clock_skew.at().set(control.skew_ms() / 1000)
        for name, broker in self._brokers.items():
            up = self._connected[name].is_set() and not broker.conditions()
            self._metrics.broker_up.at(name).set(up)
        self._metrics.peers_unreachable.at().set(self._unreachable())
        self._tell_readiness()
        for name, subscription in self._subscriptions.items():
            if name not in self._begun:
                self._begun.add(name)
                zeros.begin(self._metrics, name)
            subscription.fill()
        shown = {series for each in self._partitions.values() for series in each.fill()}
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
