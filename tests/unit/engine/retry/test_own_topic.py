"""Topics of ackd's own: made when they are needed, and watched: anybody may change them (R25)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ackd.config.subscription import SubscriptionSettings
from ackd.engine.retry.own_settings import ADDED_BYTES
from ackd.engine.retry.own_topic import (
    CONDITION,
    ORIGINS_MAX,
    OwnTopic,
    RetryTopic,
    dead_letter_topic,
    retry_topic,
)
from ackd.errors import BrokerError
from tests.unit.engine.world import NAME, TOPIC, TestBroker, TestConsumer, World

RETRY = f"ackd.retry.{NAME}"


class LookingBroker(TestBroker):
    """Also implements `ackd.ports.TopicLook` and `TopicSizes`, and has topics that may be gone."""

    def __init__(self, consumer: TestConsumer, **topics: dict[str, str]) -> None:
        super().__init__(consumer)
        self.topics: dict[str, dict[str, str]] = dict(topics)
        self.asked: list[str] = []
        self.away = False

    async def topic_settings(self, topic: str) -> Mapping[str, str]:
        self.asked.append(topic)
        return self.topics.get(topic, {})

    async def ensure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        if self.away:
            raise BrokerError("no rights")
        await super().ensure_topic(topic, settings)
        self.topics.setdefault(topic, dict(settings))

    async def take_messages_of(self, topic: str, bytes_max: int) -> None:
        if self.away:
            raise BrokerError("no rights")
        self.topics[topic] = {**self.topics[topic], "max.message.bytes": str(bytes_max)}

    async def partitions(self, topic: str) -> int | None:
        return 3 if topic in self.topics else None


@pytest.fixture
def broker(world: World) -> LookingBroker:
    return LookingBroker(world.consumer, orders={"max.message.bytes": "5000"})


async def test_it_is_made_once_and_takes_what_its_origins_take(broker: LookingBroker) -> None:
    topic = OwnTopic(broker, RETRY, {"retention.ms": "1"}, [TOPIC, "^other.*"])
    assert [await topic.ensure() for _ in range(2)] == [3, 3]
    wanted = {"retention.ms": "1", "max.message.bytes": str(5_000 + ADDED_BYTES)}
    assert broker.made == [(RETRY, wanted)]
    assert "^other.*" not in broker.asked


async def test_of_many_origins_some_are_asked(broker: LookingBroker) -> None:
    """I8."""
    topic = OwnTopic(broker, RETRY, {}, [f"t{n}" for n in range(ORIGINS_MAX + 5)])
    await topic.made()
    assert len(broker.asked) == ORIGINS_MAX


async def test_nothing_is_stored_where_it_would_be_compacted(broker: LookingBroker) -> None:
    """Somebody made the topic before us, or changed it."""
    broker.topics[RETRY] = {"cleanup.policy": "compact"}
    topic = OwnTopic(broker, RETRY, {})
    for _ in range(2):
        with pytest.raises(BrokerError, match="compact"):
            await topic.ensure()
    broker.topics[RETRY] = {"cleanup.policy": "delete"}
    assert await topic.ensure() == 3


async def test_after_a_copy_that_could_not_be_stored_it_is_looked_at_again(
    broker: LookingBroker,
) -> None:
    topic = OwnTopic(broker, RETRY, {})
    await topic.ensure()
    del broker.topics[RETRY]
    await topic.ensure()
    assert len(broker.made) == 1
    topic.doubt()
    await topic.ensure()
    assert len(broker.made) == 2
    broker.topics[RETRY] = {"cleanup.policy": "compact"}
    topic.doubt()
    with pytest.raises(BrokerError):
        await topic.ensure()


async def test_it_grows_with_a_topic_that_is_made_or_changed_after_it(
    broker: LookingBroker,
) -> None:
    """Else the first long message that is stuck could never be copied."""
    size = "max.message.bytes"
    broker.topics[RETRY] = {size: "1000"}
    topic = OwnTopic(broker, RETRY, {}, ["late"])
    await topic.look()
    assert (broker.topics[RETRY][size], topic.warnings) == ("1000", [])
    for bytes_max in (5_000, 7_000, 6_000):
        broker.topics["late"] = {size: str(bytes_max)}
        await topic.look()
        assert topic.warnings == []
    assert broker.topics[RETRY] == {size: str(7_000 + ADDED_BYTES)}, "it never shrinks"


async def test_one_that_can_not_grow_is_told(broker: LookingBroker) -> None:
    """For want of rights, or as it is somebody else's: a name that the settings gave."""
    size = "max.message.bytes"
    broker.topics |= {RETRY: {size: "1000"}, "their-letters": {size: "1000"}}
    theirs = OwnTopic(broker, "their-letters", {}, [TOPIC])
    await theirs.look()
    broker.away = True
    ours = OwnTopic(broker, RETRY, {}, [TOPIC])
    await ours.look()
    for topic in (theirs, ours):
        assert broker.topics[topic.name] == {size: "1000"}
        [warning] = topic.warnings
        assert size in warning


async def test_a_broker_that_tells_no_settings_is_believed(world: World) -> None:
    topic = OwnTopic(world.broker, RETRY, {"a": "b"}, [TOPIC])
    assert await topic.ensure() == 1
    assert world.broker.made == [(RETRY, {"a": "b"})]
    assert topic.warnings == []


async def test_what_topics_are_made_like(world: World) -> None:
    settings = SubscriptionSettings(
        topics=(TOPIC,),
        group="g",
        retry_topic_partitions=7,
        retry_topic_replication=2,
        retry_topic_retention_ms=1_234,
    )
    made = retry_topic(world.broker, "work", settings)
    assert made.name == "ackd.retry.g~work"  # subscriptions of one group have a topic each
    assert retry_topic(world.broker, "g", settings).name == "ackd.retry.g"
    assert made._settings == {
        "cleanup.policy": "delete",
        "retention.ms": "1234",
        "partitions": "7",
        "replication_factor": "2",
    }
    assert (
        "replication_factor"
        not in retry_topic(
            world.broker, "g", replace(settings, retry_topic_replication=0)
        )._settings
    )
    assert dead_letter_topic(world.broker, "work", settings).name == "ackd.dead.g"
    named = replace(settings, dead_letter_topic="graves")
    assert dead_letter_topic(world.broker, "work", named).name == "graves"


# --- the retry topic of a subscription --------------------------------------------------------


async def test_messages_move_only_once_it_is_read(world: World, broker: LookingBroker) -> None:
    world.state.broker = broker
    retry = RetryTopic(world.state, world.context)
    told = world.listens("policies")
    assert retry.rules(TOPIC) is None
    assert await retry._prepare()
    assert told == ["policies"]
    rules = retry.rules(TOPIC)
    assert rules is not None
    assert retry.rules(RETRY) is None  # copies are not copied
    world.sets(ordering="partition")
    assert retry.rules(TOPIC) is None
    world.sets(ordering="none", retry_topic=False)
    assert retry.rules(TOPIC) is None


async def test_without_it_all_else_goes_on_and_readiness_says_why(
    world: World, broker: LookingBroker
) -> None:
    world.state.broker = broker
    retry = RetryTopic(world.state, world.context)
    broker.away = True
    assert not await retry._prepare()
    assert "no rights" in world.state.conditions[CONDITION].detail
    assert retry.rules(TOPIC) is None
    broker.away = False
    assert await retry._prepare()
    assert CONDITION not in world.state.conditions
    assert retry.rules(TOPIC) is not None
    broker.away = True
    retry.topic.doubt()
    assert not await retry._prepare()
    assert retry.rules(TOPIC) is None


async def test_where_it_is_off_it_is_read_if_it_is_there(
    world: World, broker: LookingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of before come yet; but nobody makes it."""
    read: list[str] = []

    async def also(topic: str) -> None:
        read.append(topic)

    monkeypatch.setattr(world.consumer, "also", also)
    world.state.broker = broker
    world.sets(retry_topic=False)
    retry = RetryTopic(world.state, world.context)
    assert await retry._prepare()
    assert (read, broker.made) == ([], [])
    broker.topics[RETRY] = {}
    assert await retry._prepare()
    assert (read, broker.made) == ([RETRY], [])


async def test_a_broker_with_acks_of_its_own_needs_none(world: World) -> None:
    world.broker.capabilities = replace(world.broker.capabilities, broker_side_acks=True)
    assert await RetryTopic(world.state, world.context)._prepare()
    assert world.broker.made == []
