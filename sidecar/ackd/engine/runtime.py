"""The whole sidecar without its HTTP side: store, brokers, subscriptions; start, drain, stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ackd import __version__
from ackd.api.control import Cancel, CancelTo, Scope
from ackd.api.messages import (
    Explanation,
    GroupView,
    InFlight,
    LeaseView,
    PartitionLag,
    Published,
    PublishRequest,
    Reason,
    Received,
    ReceiveRequest,
    SettleItem,
    SettleResult,
    SettleVerb,
    Status,
    SubscriptionView,
    Unsettled,
)
from ackd.api.outbox import OutboxApi
from ackd.config.adapters import find_adapter
from ackd.config.schema import Settings
from ackd.config.subscription import SubscriptionSettings
from ackd.core.backoff import Backoff
from ackd.core.lease_token import LeaseKeys
from ackd.engine.base.context import Context, SystemClock
from ackd.engine.base.replay_log import ReplayLog
from ackd.engine.base.spill_file import FileSpill, Spill
from ackd.engine.base.tasks import Tasks, Vitals
from ackd.engine.cluster.lease_keys import load_keys
from ackd.engine.cluster.members import MemberNote
from ackd.engine.cluster.settings_drift import settings_marks
from ackd.engine.control.broker_watch import watch_brokers
from ackd.engine.control.describe import describe
from ackd.engine.control.gauges import Gauges
from ackd.engine.control.readiness import readiness
from ackd.engine.delivery.handed_leases import HandedLeases
from ackd.engine.delivery.open_leases import OpenLeases
from ackd.engine.delivery.waiters import Waiter
from ackd.engine.drain import Drain
from ackd.engine.operations.dead_letter_gauges import DeadLetterGauges
from ackd.engine.operations.dead_letters import DeadLetters
from ackd.engine.operations.seek import Seeks
from ackd.engine.ownership.broadcast import apart, is_broadcast
from ackd.engine.parts_by_name import PartsByName
from ackd.engine.peers.links import PeerLinks
from ackd.engine.publishing.outbox import OutboxService, OutboxServices
from ackd.engine.publishing.publishing import Publishing
from ackd.engine.settlement.settle import Settler
from ackd.engine.subscription import PeerParts, Subscription
from ackd.errors import (
    AckdError,
    BadParameterError,
    BrokerError,
    BrokerFatalError,
    StoreError,
    StoreSetupError,
    UnknownSubscriptionError,
)
from ackd.ports import Broker, Clock, Condition, PeerNetwork, Store
from ackd.retries import repeating
from ackd.store.build import open_store
from ackd.store.flusher import Flusher
from ackd.store.measured import MeasuredStore
from ackd.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from ackd.engine.tracing.outages import Outages
    from ackd.telemetry.traces import Traces

LOG = logging.getLogger("ackd.engine")

AGAIN = Backoff.constant(500)
"""Store, broker and subscriptions are tried again soon: their other side may just have started."""


# tidy: long-class lines=440 methods=29 attributes=25 -- one method for each question of the API
class Runtime:
    """Implements `ackd.api.messages.Engine`. Build, `start`, use, `drain`, `stop`."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store | None = None,
        brokers: Mapping[str, Broker] | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        vitals: Vitals | None = None,
        peers: PeerNetwork | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics()
        self._clock = clock or SystemClock()
        self._store = MeasuredStore(
            store or open_store(settings.store, settings.state_dir), self.metrics
        )
        self._brokers = dict(brokers) if brokers is not None else open_brokers(settings)
        self._up: dict[str, asyncio.Event] = {name: asyncio.Event() for name in self._brokers}
        self._broker_errors: dict[str, str] = {}
        self.vitals = vitals or Vitals()
        self._tasks = Tasks("runtime", self.vitals)
        self._started_ms = self._clock.monotonic_ms()
        self._subscriptions: dict[str, Subscription] = {}
        self._by_name = PartsByName()
        outboxes: dict[str, OutboxService] = {}
        self._publishing = Publishing(settings, self._brokers, self._up, outboxes)
        self.outbox: OutboxApi = OutboxServices(outboxes)
        self.dead = DeadLetters(self._by_name.dead_letters, self._store, self._clock)
        self.progress = Seeks(self._by_name.seeks)
        self._handed = HandedLeases()
        self._drain = Drain(
            self._by_name.partitions,
            self._by_name.dispatchers,
            self._by_name.departures,
            self._publishing,
            self._handed,
            self._settling,
        )
        self.traces: Traces | None = None
        self._outages: Outages | None = None
        self._links = PeerLinks(peers, self._clock, self.vitals)
        self._flusher = Flusher(self._store, batch_max=settings.store.batch_max)
        self._settler: Settler | None = None
        self._gauges = Gauges(
            self.metrics,
            self._store,
            self._brokers,
            self._up,
            self._by_name.gauges,
            self._by_name.partition_gauges,
            self._by_name.controls,
            self.readiness,
            lambda: len(self._links.unreachable()),
        )
        self._gauges.attach(settings.identity)

    # --- life

    async def start(self) -> None:
        """Connect the store (waiting for it if it is away) and start everything else.

        Brokers and groups connect in the background; `readiness` reports their state. Raises
        StoreSetupError, ConfigError.
        """
        if self.settings.traces.on:
            # Some 2 MiB that a sidecar without traces need not load.
            from ackd.engine.tracing.outages import Outages  # noqa: PLC0415
            from ackd.telemetry.traces import open_traces  # noqa: PLC0415

            self.traces = open_traces(self.settings, self.metrics)
            await self.traces.start()
            self._outages = Outages(self.traces, self._store, self._brokers, self._up)
        context = await self._connect()
        await self._links.start(lambda: context.keys.key)
        for name, each in self.settings.subscriptions.items():
            self._subscriptions[name] = self._build(name, each, context)
        self._settler = Settler(self._by_name.settles, context)
        for name, broker in self._brokers.items():
            self._tasks.start(self._start_broker(name, broker), f"broker.{name}", ends=True)
        self._tasks.start(watch_brokers(self._brokers, self.vitals), "broker-watch")
        self._publishing.start(context, self._tasks)
        for name in self._subscriptions:
            self._tasks.start(self._run(name, context), f"subscription.{name}")
        self._tasks.start(self._gauges.run(), "gauges", vital=False)
        parts = self._by_name
        letters = DeadLetterGauges(parts.dead_letters, parts.partitions, self.metrics, self._clock)
        self._tasks.start(letters.run(), "dead-letter-gauges", vital=False)

    async def _connect(self) -> Context:
        keys = await self._load_keys()
        self._tasks.start(self._flusher.run(), "flusher")
        return Context(
            store=self._store,
            flusher=self._flusher,
            clock=self._clock,
            identity=self.settings.identity,
            keys=keys,
            metrics=self.metrics,
            replay_log=ReplayLog(self._flusher, self._clock, lambda: self._store.run),
            grace_ms=self.settings.store.grace_ms,
            spill=self._spill,
            traces=self.traces,
            vitals=self.vitals,
        )

    def _spill(self, name: str, bytes_max: int) -> Spill:
        return FileSpill(self.settings.state_dir / "spill" / name, bytes_max)

    async def _load_keys(self) -> LeaseKeys:
        async def load() -> LeaseKeys:
            await self._store.start()
            return await load_keys(self._store, self.settings.lease_key_file)

        retrying = repeating(
            StoreError,
            AGAIN,
            only=lambda error: not isinstance(error, StoreSetupError),
            failed=lambda error: LOG.warning("the store does not answer: %s", error.detail),
        )
        return await retrying(load)

    def _build(self, name: str, settings: SubscriptionSettings, context: Context) -> Subscription:
        settings, context = apart(name, settings, context)
        note = MemberNote(version=__version__, settings=settings_marks(name, settings))
        broker = self._brokers[settings.broker]
        shared = self._links.on and not is_broadcast(settings)
        peers = PeerParts(self._links, self._release) if shared else None
        return Subscription(
            name,
            settings,
            broker,
            context,
            note=note,
            handed=self._handed,
            by_name=self._by_name,
            look=self.lease,
            peers=peers,
        )

    def _release(self, leases: Sequence[str]) -> None:
        """Release leases on other sidecars' partitions (R21). If that fails, they expire."""
        items = [SettleItem(each, SettleVerb.RELEASE) for each in leases]
        self._tasks.start(self._settle_all(items), "release", vital=False, ends=True)

    async def _settle_all(self, items: Sequence[SettleItem]) -> None:
        self._handed.settled(items, await self._settling().settle(items))

    async def _start_broker(self, name: str, broker: Broker) -> None:
        def failed(error: BrokerError) -> None:
            if self._broker_errors.get(name) != error.detail:
                LOG.warning("ackd can't connect to broker %s: %s", name, error.detail)
            self._broker_errors[name] = error.detail

        if not self._up[name].is_set():
            await repeating(BrokerError, AGAIN, failed=failed)(broker.start)
            self._broker_errors.pop(name, None)
            self._up[name].set()

    async def _run(self, name: str, context: Context) -> None:
        """Keep one subscription running; build it again when its broker client died."""
        while True:
            subscription = self._subscriptions[name]
            await self._up[subscription.state.configured.broker].wait()
            try:
                cluster = await subscription.state.broker.cluster_id()
                subscription.state.found_cluster(subscription.cluster_scope(cluster))
                await subscription.run()
            except* BrokerFatalError as group:
                why = group.exceptions[0]
                LOG.warning("%s: the broker client ended, ackd rejoins the group: %s", name, why)
            except* BrokerError as group:
                LOG.warning(
                    "%s: the broker ended the subscription, ackd starts it again: %s",
                    name,
                    group.exceptions[0],
                )
            await asyncio.sleep(AGAIN.base_ms / 1000)
            again = self._build(name, subscription.state.configured, context)
            self._subscriptions[name] = again
            again.inherit(subscription)

    async def stop(self) -> None:
        """Commit progress, leave the groups, close everything. Never raises, bounded."""
        self._drain.begin()
        if self._outages is not None:
            self._outages.end()
        await self._drain.stop()
        await asyncio.gather(*(each.leave() for each in self._subscriptions.values()))
        await self._publishing.stop()
        await self._links.stop()
        await self._tasks.stop()
        await asyncio.gather(*(each.close() for each in self._brokers.values()))
        await self._store.close()
        if self.traces is not None:
            await self.traces.stop()

    # --- the facade

    def _of(self, name: str) -> Subscription:
        subscription = self._subscriptions.get(name)
        if subscription is None:
            raise UnknownSubscriptionError(f"there is no subscription {name!r} here")
        return subscription

    def _settling(self) -> Settler:
        if self._settler is None:
            raise StoreError("the store is not connected yet")
        return self._settler

    async def receive(self, name: str, request: ReceiveRequest) -> Received:
        dispatcher = self._by_name.dispatchers[name]
        self._check_lease(name, request.lease_ms)
        try:
            if request.attempt_id is not None:
                received = await self._by_name.attempts[name].receive(request.attempt_id, request)
            else:
                received = await dispatcher.receive(request)
        except asyncio.CancelledError:
            self.metrics.receives.at(name, "cancelled").inc()
            raise
        except AckdError:
            self.metrics.receives.at(name, "error").inc()
            raise
        self._count(name, received)
        return received

    def _check_lease(self, name: str, lease_ms: int | None) -> None:
        if lease_ms is None:
            return
        most = self._of(name).state.settings.lease_ms_max
        if not 0 < lease_ms <= most:
            raise BadParameterError(f"lease_ms must be 1 to {most}")

    def _count(self, name: str, received: Received) -> None:
        messages, metrics = received.messages, self.metrics
        outcome = "replayed" if received.replayed else "messages" if messages else "empty"
        metrics.receives.at(name, outcome).inc()
        if messages and not received.replayed:
            again = sum([message.attempt > 1 for message in messages])
            metrics.deliveries.at(name, "first").inc(len(messages) - again)
            if again:
                metrics.deliveries.at(name, "again").inc(again)

    async def abandon(self, received: Received) -> None:
        """Release the leases of an answer that was not sent (R21)."""
        for dispatcher in self._by_name.dispatchers.values():
            dispatcher.give_back(received.messages)

    async def settle(self, items: Sequence[SettleItem]) -> list[SettleResult]:
        results = await self._settling().settle(items)
        self._handed.settled(items, results)
        return results

    async def settle_and_receive(
        self, items: Sequence[SettleItem], name: str, request: ReceiveRequest
    ) -> tuple[list[SettleResult], Received | AckdError]:
        """Settle, then receive, in one flush of the store."""
        settling, dispatcher = self._settling(), self._by_name.dispatchers[name]
        self._check_lease(name, request.lease_ms)
        if request.attempt_id is not None:
            return await self._one_after_the_other(items, name, request)
        entered: list[Waiter] = []
        refused: list[AckdError] = []

        def enter() -> None:
            try:
                entered.append(dispatcher.enter(request))
            except AckdError as error:
                refused.append(error)

        try:
            results = await settling.settle(items, enter)
        except BaseException:
            for waiter in entered:
                dispatcher.leave(waiter)
            raise
        self._handed.settled(items, results)
        if refused:
            self.metrics.receives.at(name, "error").inc()
            return results, refused[0]
        if Status.UNAVAILABLE in [result.status for result in results]:
            dispatcher.leave(entered[0])
            return results, StoreError()
        try:
            received = await dispatcher.answer(entered[0])
        except AckdError as error:
            self.metrics.receives.at(name, "error").inc()
            return results, error
        self._count(name, received)
        return results, received

    async def _one_after_the_other(
        self, items: Sequence[SettleItem], name: str, request: ReceiveRequest
    ) -> tuple[list[SettleResult], Received | AckdError]:
        results = await self.settle(items)
        if any(result.status is Status.UNAVAILABLE for result in results):
            return results, StoreError()
        try:
            return results, await self.receive(name, request)
        except AckdError as error:
            return results, error

    async def lease(self, token: str) -> LeaseView:
        return await self._settling().look(token)

    async def publish(self, broker: str | None, request: PublishRequest) -> Published:
        return await self._publishing.publish(broker, request)

    # --- streams and push

    def unsettled(self, name: str) -> Unsettled:
        """Count the leases of a consumer. Raises UnknownSubscriptionError."""
        context = self._of(name).context
        return OpenLeases(name, context, self._by_name.partitions, self.lease, self._handed)

    def lease_ms(self, name: str) -> int:
        """The lease time that is in force. Raises UnknownSubscriptionError."""
        return self._of(name).state.settings.lease_ms

    def hold_back(self, name: str, source: str, why: str | None) -> None:
        """Note why `source` delivers nothing now; None when it delivers."""
        self._of(name).context.lease_events.hold_back(name, source, why)

    def warn(self, name: str, source: str, what: str | None) -> None:
        """Let readiness warn of something at `source`; None: it is over."""
        state = self._of(name).state
        if what is None:
            state.clear(source)
        else:
            state.report(Condition(source, f"{source}: {what}", warning=True))

    # --- stopping

    def quiesce(self) -> None:
        """Deliver nothing new, for good; others get what is owned here, and settles go on."""
        self._drain.quiesce()

    async def drain(self, serve_s: float = 0.0, quiet: Callable[[], None] | None = None) -> None:
        """See `Drain.drain`; settles go on."""
        await self._drain.drain(serve_s, quiet)

    async def give_back(self) -> int:
        """Release every lease of applications here, uncounted; returns how many. Raises
        StoreError.
        """
        return await self._drain.give_back()

    async def end_held(self) -> int:
        """The same, but counted: the application is gone, and a message may be the cause. Raises
        StoreError.
        """
        return await self._drain.end_held()

    def pause_unhealthy(self, why: str | None) -> None:
        """Deliver nothing while the application is unhealthy, for this reason; None: go on."""
        for control in self._by_name.controls.values():
            control.pause_unhealthy(why)

    # --- operators

    def group(self, name: str) -> GroupView:
        return self._by_name.groups[name]

    async def explain(self, name: str) -> Explanation:
        return await self._by_name.inspectors[name].explain()

    async def in_flight(self, name: str, older_ms: int, limit: int) -> list[InFlight]:
        return await self._by_name.inspectors[name].in_flight(older_ms, limit)

    async def lag(self, name: str) -> list[PartitionLag]:
        return await self._by_name.lags[name].rows()

    async def pause(
        self, name: str, scope: Scope, reason: str, for_ms: int | None
    ) -> SubscriptionView:
        """Deliver nothing until it is resumed, or for a time."""
        await self._by_name.controls[name].pause(scope, reason, for_ms)
        return self.subscription(name)

    async def resume(self, name: str, scope: Scope) -> SubscriptionView:
        await self._by_name.controls[name].resume(scope)
        return self.subscription(name)

    async def cancel(self, name: str, message: str, then: CancelTo, reason: str) -> Cancel:
        """End a message that is in flight."""
        return await self._by_name.cancels[name].cancel(message, then, reason)

    async def configure(self, name: str, changes: Mapping[str, object]) -> SubscriptionView:
        """Change settings while the subscription runs."""
        await self._by_name.controls[name].configure(changes)
        return self.subscription(name)

    def subscriptions(self) -> list[SubscriptionView]:
        return [self.subscription(name) for name in self.settings.subscriptions]

    def subscription(self, name: str) -> SubscriptionView:
        settings = self.settings.subscriptions.get(name)
        if settings is None:
            raise UnknownSubscriptionError(f"there is no subscription {name!r} here")
        control = self._by_name.controls.get(name)
        sources = self.settings.sources_below(f"subscriptions.{name}")
        broker = self._brokers[settings.broker]
        return describe(name, settings, sources, broker, control, self._state(name))

    def _state(self, name: str) -> str:
        if self._drain.begun:
            return "draining"
        subscription = self._subscriptions.get(name)
        return "starting" if subscription is None else subscription.phase()

    def readiness(self) -> list[Reason]:
        return readiness(
            self._store,
            self._brokers,
            self._broker_errors,
            self._by_name.readiness,
            self.vitals.failure,
            draining=self._drain.begun,
            unreachable=self._links.unreachable() if self._links.on else None,
            unheard=self._links.problem,
        )

    def info(self) -> Mapping[str, object]:
        return {
            "version": __version__,
            "identity": self.settings.identity,
            "uptime_ms": self._clock.monotonic_ms() - self._started_ms,
            "brokers": {name: each.capabilities.name for name, each in self._brokers.items()},
            "subscriptions": list(self.settings.subscriptions),
        }


def open_brokers(settings: Settings) -> dict[str, Broker]:
    """Build every configured broker. Raises ConfigError."""
    return {
        name: find_adapter(each.adapter).open(name, each.options)
        for name, each in settings.brokers.items()
    }
