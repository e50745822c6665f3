"""Topics that ackd makes for a group: retry copies and dead letters (rule R25)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ackd.config.subscription import SubscriptionSettings
from ackd.core.stuck import Rules
from ackd.engine.context import Context
from ackd.engine.pauses import FIRST_MS, Pauses
from ackd.errors import BrokerError
from ackd.ports import Broker, Trouble

if TYPE_CHECKING:
    from ackd.engine.subscription import Subscription

LOG = logging.getLogger("ackd.engine")

DEAD_RETENTION_MS = 14 * 86_400_000
TROUBLE = "retry-topic"


class OwnTopic:
    """One such topic: made when it is first needed, and again when it is gone."""

    def __init__(self, broker: Broker, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self._broker = broker
        self._settings = settings
        self._partitions = 0

    async def ensure(self) -> int:
        """Make it unless it is there; how many partitions it has. Raises BrokerError."""
        if not self._partitions:
            await self._broker.ensure_topic(self.name, self._settings)
            self._partitions = await self._broker.partitions(self.name) or 1
        return self._partitions

    def doubt(self) -> None:
        """Something could not be stored there: look again before the next try."""
        self._partitions = 0


def dead_letter_topic(broker: Broker, name: str, settings: SubscriptionSettings) -> OwnTopic:
    """Never compacted (it eats copies of one key), kept for two weeks."""
    topic = broker.dead_topic(settings.group or name)
    return OwnTopic(broker, topic, _delete_after(DEAD_RETENTION_MS))


def retry_topic(broker: Broker, name: str, settings: SubscriptionSettings) -> OwnTopic:
    """Subscriptions of one group keep separate ledgers, so they get separate topics too."""
    group = settings.group or name
    topic = broker.retry_topic(group if group == name else f"{group}~{name}")
    wanted = {
        **_delete_after(settings.retry_topic_retention_ms),
        "partitions": str(settings.retry_topic_partitions),
    }
    if settings.retry_topic_replication:
        wanted["replication_factor"] = str(settings.retry_topic_replication)
    return OwnTopic(broker, topic, wanted)


def _delete_after(retention_ms: int) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(retention_ms)}


class RetryTopic:
    """The retry topic of one subscription: made, and read like any other topic of it.

    While it can't be made nothing is sent back, readiness says why, and all else goes on.
    """

    def __init__(self, subscription: Subscription, context: Context) -> None:
        self._subscription = subscription
        # Readiness waits for it, and one question in five seconds hurts no broker.
        self._pauses = Pauses(context.clock, most_ms=FIRST_MS)
        self.topic = retry_topic(subscription.broker, subscription.name, subscription.settings)
        self.read = False

    def rules(self, topic: str) -> Rules | None:
        """When messages of a topic are sent back; None = never. Copies are not copied again, and
        with the order of a whole partition its head blocks (R19).
        """
        settings = self._subscription.settings
        wanted = self.read and settings.retry_topic and settings.ordering != "partition"
        if not wanted or topic == self.topic.name:
            return None
        least_ms = max(settings.lease_ms, settings.stuck_min_age_ms)
        return Rules(settings.stuck_after_ms, least_ms, settings.span_max)

    async def _prepare(self) -> bool:
        """Try once. Copies of a time when it was switched on are still read. Never raises."""
        topic, subscription = self.topic, self._subscription
        try:
            if self._subscription.settings.retry_topic:
                await topic.ensure()
            elif await subscription.broker.partitions(topic.name) is None:
                return True
            await subscription.consumer.also(topic.name)
        except BrokerError as error:
            LOG.warning("%s: no retry topic: %s", subscription.name, error.detail)
            detail = f"stuck messages can't be sent back: {error.detail}"
            subscription.troubles[TROUBLE] = Trouble(TROUBLE, detail)
            return False
        self.read = True
        subscription.troubles.pop(TROUBLE, None)
        for partition in subscription.owned.values():
            partition.ledger.rules = self.rules(partition.tp.topic)
        return True

    async def run(self) -> None:
        """Make it, however many tries that takes."""
        while not await self._prepare():
            await self._pauses.sleep()
