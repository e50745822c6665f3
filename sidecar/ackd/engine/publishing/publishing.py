"""Publishing to all brokers of this sidecar, directly or through their outboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from ackd.api.messages import Published, PublishRequest
from ackd.config.schema import Settings
from ackd.engine.base.context import Context
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox import OutboxService
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.engine.publishing.publish import Publisher
from ackd.engine.retry.own_topic import ReservedTopics
from ackd.errors import BadParameterError
from ackd.ports import Broker

COUNT_S = 10.0


class Publishing:
    """A publisher for each broker and, unless it is off, an outbox. `up`: which brokers have
    started; `outboxes`: it puts them there by their broker.
    """

    def __init__(
        self,
        settings: Settings,
        brokers: Mapping[str, Broker],
        up: Mapping[str, asyncio.Event],
        outboxes: dict[str, OutboxService],
    ) -> None:
        self._settings = settings
        self._brokers = brokers
        self._up = up
        self._publishers: dict[str, Publisher] = {}
        self._outboxes = outboxes

    def start(self, context: Context, tasks: Tasks) -> None:
        """Start publishers and outboxes, once the store is connected."""
        settings = self._settings.publish
        for name, broker in self._brokers.items():
            outbox = None
            if settings.outbox != "off":
                how = self._settings.brokers[name]
                outbox_name = OutboxName(name, how, context.store, self._up[name])
                away = partial(self._away, name)
                outbox = OutboxService(name, broker, settings, context, outbox_name, away)
                self._outboxes[name] = outbox
                tasks.start(outbox_name.find(broker), f"outbox.{name}.name", ends=True)
                tasks.start(outbox.run(), f"outbox.{name}")
            subscriptions = {
                n: s for n, s in self._settings.subscriptions.items() if s.broker == name
            }
            reserved = ReservedTopics(broker, subscriptions)
            self._publishers[name] = Publisher(name, broker, settings, context, reserved, outbox)
        tasks.start(self._count_keys(), "idempotency-gauges", vital=False)

    async def _count_keys(self) -> None:
        """Keys also go with time, when nobody publishes."""
        while True:
            for each in self._publishers.values():
                each.count_keys()
            await asyncio.sleep(COUNT_S)

    def _away(self, name: str) -> bool:
        """Whether the broker can't be reached, as far as is known."""
        if not self._up[name].is_set():
            return True
        return any(condition.away for condition in self._brokers[name].conditions())

    async def publish(self, broker: str | None, request: PublishRequest) -> Published:
        """Publish to the named broker, to the only one, or to the one whose subscription has the
        topic.
        """
        publisher = self._publishers.get(broker or self._broker_for(request))
        if publisher is None:
            raise BadParameterError(f"there is no broker {broker!r}")
        return await publisher.publish(request)

    def _broker_for(self, request: PublishRequest) -> str:
        if len(self._publishers) == 1:
            return next(iter(self._publishers))
        topic = request.messages[0].topic if request.messages else ""
        names = {s.broker for s in self._settings.subscriptions.values() if topic in s.topics}
        if len(names) != 1:
            raise BadParameterError(f"say which broker: none or several have the topic {topic!r}")
        return names.pop()

    async def drain(self) -> None:
        """Wait until due messages are sent, as long as sending succeeds."""
        await asyncio.gather(*(each.drain() for each in self._outboxes.values()))

    async def stop(self) -> None:
        """Wait for what is under way, and let other sidecars send."""
        await asyncio.gather(*(each.stop() for each in self._outboxes.values()))
