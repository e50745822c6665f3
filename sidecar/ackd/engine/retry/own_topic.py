"""Creates and checks the topics that ackd keeps for a group: retry copies and dead letters (rule
R25).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from ackd.config.subscription import SubscriptionSettings, longest_delay_ms
from ackd.core.ledger.send_back import Rules
from ackd.engine.base.context import Context
from ackd.engine.base.subscription_state import SubscriptionState
from ackd.engine.retry import own_settings
from ackd.errors import BrokerError
from ackd.ports import Broker, Condition, TopicLook, TopicSizes
from ackd.ports.own_topics import OWN_PREFIX

LOG = logging.getLogger("ackd.engine")

DEAD_RETENTION_MS = 14 * 86_400_000
CONDITION = "retry-topic"
EARLY = "dead-letter-topic-missing"
LOOK_EVERY_MS = 60_000
PREPARE_EVERY_MS = 5_000
"""Constant: readiness waits for the topic, and one request in this time hurts no broker."""
ORIGINS_MAX = 20
"""Of at most this many origin topics ackd asks how large messages may be."""


class OwnTopic:
    """One such topic: ackd creates it when it is first needed, and again when it is gone.
    `origins`: the topics whose messages are copied into it.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        settings: Mapping[str, str],
        origins: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._broker = broker
        self._settings = settings
        self._origins = [each for each in origins if not each.startswith("^")][:ORIGINS_MAX]
        self._partitions = 0
        self._fit = False
        self.warnings: list[str] = []

    async def ensure(self) -> int:
        """Create the topic unless it exists; returns how many partitions it has. Raises
        BrokerError, also when copies would not be safe in it.
        """
        partitions = await self.made()
        if not self._fit:
            await self.look()
            self._fit = True
        return partitions

    async def made(self) -> int:
        """Like `ensure`, but whatever the topic's settings are."""
        if not self._partitions:
            wanted, size = dict(self._settings), await self._message_bytes()
            if size:
                wanted[own_settings.SIZE] = str(size + own_settings.ADDED_BYTES)
            await self._broker.ensure_topic(self.name, wanted)
            self._partitions = await self._broker.partitions(self.name) or 1
        return self._partitions

    async def look(self, waits_ms: int = 0) -> None:
        """Compare the topic's settings with what copies need: anybody may have created it.
        `waits_ms`: the longest time that a copy waits in it. Raises BrokerError.
        """
        if not isinstance(self._broker, TopicLook):
            return
        actual = await self._broker.topic_settings(self.name)
        refusal = own_settings.refusal(self.name, actual)
        if refusal:
            raise BrokerError(refusal)
        size = await self._message_bytes()
        widened = await self._widened(actual, size)
        self.warnings = own_settings.warnings(self.name, {**actual, **widened}, waits_ms, size)

    async def _widened(self, actual: Mapping[str, str], size: int) -> Mapping[str, str]:
        """Let the topic take copies of messages of `size` bytes: an origin topic may have been made
        after it, or changed. Returns what was changed. A topic that the settings name is somebody
        else's, and left as it is.
        """
        broker, wanted = self._broker, size + own_settings.ADDED_BYTES
        there = int(actual.get(own_settings.SIZE, 0))
        if not (size and 0 < there < wanted):
            return {}
        if not _short(self.name).startswith(OWN_PREFIX) or not isinstance(broker, TopicSizes):
            return {}
        try:
            await broker.take_messages_of(self.name, wanted)
        except BrokerError as error:
            LOG.info("%s can't be changed: %s", self.name, error.detail)
            return {}
        LOG.info("%s takes messages of %d bytes now, as its topics do", self.name, size)
        return {own_settings.SIZE: str(wanted)}

    async def _message_bytes(self) -> int:
        """The largest message that an origin topic takes; 0 if not known."""
        if not isinstance(self._broker, TopicLook):
            return 0
        found = [await self._broker.topic_settings(each) for each in self._origins]
        return max((int(each.get(own_settings.SIZE, 0)) for each in found), default=0)

    def doubt(self) -> None:
        """A copy could not be stored: check the topic again before the next attempt."""
        self._partitions = 0
        self._fit = False


def dead_name(broker: Broker, name: str, settings: SubscriptionSettings) -> str:
    """The name of a subscription's dead-letter topic."""
    return settings.dead_letter_topic or broker.dead_letter_topic(settings.group or name)


def dead_letter_topic(broker: Broker, name: str, settings: SubscriptionSettings) -> OwnTopic:
    """The dead-letter topic: never compacted (that would delete copies of one key), kept for two
    weeks.
    """
    topic = dead_name(broker, name, settings)
    return OwnTopic(broker, topic, _delete_after(DEAD_RETENTION_MS), settings.topics)


def retry_topic(broker: Broker, name: str, settings: SubscriptionSettings) -> OwnTopic:
    """The retry topic. Subscriptions of one group keep separate records, so each has its own."""
    group = settings.group or name
    topic = broker.retry_topic(group if group == name else f"{group}~{name}")
    wanted = {
        **_delete_after(settings.retry_topic_retention_ms),
        "partitions": str(settings.retry_topic_partitions),
    }
    if settings.retry_topic_replication:
        wanted["replication_factor"] = str(settings.retry_topic_replication)
    return OwnTopic(broker, topic, wanted, settings.topics)


async def make_early(state: SubscriptionState, topic: OwnTopic) -> None:
    """Make the dead-letter topic before it is needed, for brokers where that may take an operator:
    readiness says what is missing. Never raises.
    """
    while True:
        try:
            await topic.ensure()
        except BrokerError as error:
            detail = f"dead letters have no topic yet: {error.detail}"
            state.report(Condition(EARLY, detail, warning=True))
            await asyncio.sleep(PREPARE_EVERY_MS / 1000)
        else:
            state.clear(EARLY)
            return


class ReservedTopics:
    """Topics of a broker into which only ackd or the broker itself writes.

    ackd takes every record in a retry or dead-letter topic for a copy of a message. An application
    that writes there by mistake would get its record back under a name that it does not expect.
    """

    def __init__(self, broker: Broker, subscriptions: Mapping[str, SubscriptionSettings]) -> None:
        self._beginnings = broker.capabilities.reserved
        self._names = frozenset(
            topic
            for name, each in subscriptions.items()
            for topic in (retry_topic(broker, name, each).name, dead_name(broker, name, each))
        )

    def __contains__(self, topic: str) -> bool:
        """Whether the topic is reserved, by its full name or by its name within its namespace."""
        full, short = _full(topic), _short(topic)
        return (
            topic in self._names
            or short.startswith(self._beginnings)
            or full.startswith(self._beginnings)
        )

    def refuses(self, topic: str) -> bool:
        """Whether an application can't publish to the topic: it is reserved, or named like ackd's
        own. A redrive may go to the latter: another client can have written there.
        """
        return topic in self or _short(topic).startswith(OWN_PREFIX)


def _full(topic: str) -> str:
    """The topic's name with its namespace, without a scheme such as `persistent://`."""
    return topic.rpartition("://")[2]


def _short(topic: str) -> str:
    """The topic's name within its namespace."""
    return topic.rpartition("/")[2]


def _delete_after(retention_ms: int) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(retention_ms)}


class RetryTopic:
    """The retry topic of one subscription: ackd creates it and reads it like any other topic.

    While it can't be created, no message moves to it, readiness says why, and all else goes on.
    """

    def __init__(self, state: SubscriptionState, context: Context) -> None:
        self._state = state
        self.topic = retry_topic(state.broker, state.name, state.settings)
        self.read = False

    @property
    def name(self) -> str:
        """The topic's name at the broker."""
        return self.topic.name

    def rules(self, topic: str) -> Rules | None:
        """When messages of a topic move to the retry topic; None = never. Copies are not copied
        again. When the order covers a whole partition, its first unfinished message blocks it
        instead (R19).
        """
        settings = self._state.settings
        wanted = self.read and settings.retry_topic and settings.ordering != "partition"
        if not wanted or topic == self.topic.name:
            return None
        least_ms = max(settings.lease_ms, settings.stuck_min_age_ms)
        return Rules(settings.stuck_after_ms, least_ms, settings.span_max)

    @property
    def unused(self) -> str:
        """Why no message moves to the retry topic; empty if stuck messages do."""
        state = self._state
        if state.broker.capabilities.broker_side_acks:
            return "the broker keeps the acks itself, so nothing waits behind it"
        if not state.settings.retry_topic:
            return "retry_topic is off"
        if state.settings.ordering == "partition":
            return "in its partition's order it holds up all behind it"
        return "" if self.read else "there is no retry topic yet"

    async def _prepare(self) -> bool:
        """Try once to create and read it. If it is switched off now, older copies are still read.
        Never raises.
        """
        topic, state = self.topic, self._state
        settings = state.settings
        if state.broker.capabilities.broker_side_acks:
            return True  # a stuck message holds up nothing there, so no copy is needed
        try:
            if settings.retry_topic:
                await topic.made()
            elif await state.broker.partitions(topic.name) is None:
                return True
            await state.consumer.also(topic.name)
            if settings.retry_topic:
                await topic.look(longest_delay_ms(settings))
        except BrokerError as error:
            self._may_send(may=False)
            LOG.warning(
                "%s: no retry topic, so stuck messages stay in the window: %s",
                state.name,
                error.detail,
            )
            detail = f"stuck messages can't move to the retry topic: {error.detail}"
            state.report(Condition(CONDITION, detail))
            return False
        if not state.clear(CONDITION) and self.warning:
            LOG.warning("%s: %s", state.name, self.warning)
        self._may_send(may=True)
        return True

    def _may_send(self, *, may: bool) -> None:
        self.read = may
        self._state.signals.policies()

    @property
    def warning(self) -> str:
        """What an operator should change about the topic; empty if nothing."""
        return "; ".join(f"warning: {each}" for each in self.topic.warnings)

    async def run(self) -> None:
        """Create the topic, however many attempts that takes."""
        while not await self._prepare():  # noqa: ASYNC110 -- brokers have no event for this
            await asyncio.sleep(PREPARE_EVERY_MS / 1000)

    async def watch(self) -> None:
        """Check regularly whether somebody changed or removed the topic, until cancelled: for
        brokers that can tell.
        """
        while True:
            await asyncio.sleep(LOOK_EVERY_MS / 1000)
            self.topic.doubt()
            await self.run()
