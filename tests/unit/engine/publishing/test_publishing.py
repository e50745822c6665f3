"""Which broker a publish goes to, and when it goes through the broker's outbox (R20, R25)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ackd.api.messages import PublishRequest
from ackd.config.schema import BrokerSettings, PublishSettings, Settings
from ackd.config.subscription import SubscriptionSettings
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox import OutboxService
from ackd.engine.publishing.outbox_lease import LEASE_MS
from ackd.engine.publishing.publishing import COUNT_S, Publishing
from ackd.errors import BadParameterError, ReservedTopicError
from ackd.ports import Condition, Outgoing, Stored
from tests.unit.engine.scripted import ScriptedBroker
from tests.unit.engine.world import NAME, TOPIC, World

AWAY = Condition("broker-away", "no answer", away=True)
SECOND = "billing"
KEYS = "ackd_idempotency_keys_ratio"


def asks(topic: str = TOPIC, value: bytes = b"v") -> PublishRequest:
    return PublishRequest([Outgoing(topic, None, value)])


def later(value: bytes) -> PublishRequest:
    """For the outbox."""
    return PublishRequest([Outgoing(TOPIC, None, value)], respond_async=True)


class Scene:
    """Two brokers, `east` and `west`, each with a subscription; both read `shared`."""

    def __init__(self, world: World, *names: str, outbox: str = "off") -> None:
        self.world, self.tasks = world, Tasks("publishing")
        self.brokers = {name: ScriptedBroker() for name in names}
        self.up = {name: asyncio.Event() for name in names}
        subscriptions = {
            NAME: SubscriptionSettings(broker="east", topics=(TOPIC, "shared")),
            SECOND: SubscriptionSettings(
                broker="west", topics=("invoices", "shared"), dead_letter_topic="graves"
            ),
        }
        self.settings = Settings(
            identity="pod-1",
            state_dir=Path("unused"),
            brokers={name: BrokerSettings(adapter="scripted") for name in names},
            subscriptions={n: s for n, s in subscriptions.items() if s.broker in names},
            publish=replace(PublishSettings(), outbox=outbox),  # type: ignore[arg-type]
        )
        self.outboxes: dict[str, OutboxService] = {}
        self.publishing = Publishing(self.settings, self.brokers, self.up, self.outboxes)

    def start(self) -> Scene:
        self.publishing.start(self.world.context, self.tasks)
        return self

    async def stop(self) -> None:
        await self.publishing.stop()
        await self.tasks.stop()

    async def publish(self, request: PublishRequest, broker: str | None = None) -> object:
        """What became of its message."""
        published = await self.publishing.publish(broker, request)
        (found,) = published.results
        return found

    def sent(self) -> list[str]:
        """The brokers that got a message."""
        return [name for name, each in self.brokers.items() if each.stored]


Make = Callable[..., Scene]


@pytest.fixture
async def make(world: World) -> AsyncIterator[Make]:
    made: list[Scene] = []

    def make(*names: str, outbox: str = "off") -> Scene:
        made.append(Scene(world, *names, outbox=outbox).start())
        return made[-1]

    yield make
    for each in made:
        await each.stop()


# --- which broker


async def test_the_only_broker_gets_every_topic(make: Make) -> None:
    scene = make("east")
    assert isinstance(await scene.publish(asks("anything")), Stored)


async def test_a_topic_names_its_broker_where_one_subscription_reads_it(make: Make) -> None:
    scene = make("east", "west")
    await scene.publish(asks("invoices"))
    assert scene.sent() == ["west"]


@pytest.mark.parametrize("topic", ["shared", "nobody-reads-it"])
async def test_where_several_or_none_have_the_topic_who_publishes_must_say_which(
    make: Make, topic: str
) -> None:
    """A guess would put a message where nobody looks for it."""
    scene = make("east", "west")
    with pytest.raises(BadParameterError, match=topic):
        await scene.publish(asks(topic))
    await scene.publish(asks(topic), broker="west")
    assert scene.sent() == ["west"]


async def test_a_broker_that_is_not_there_is_named(make: Make) -> None:
    scene = make("east", "west")
    with pytest.raises(BadParameterError, match="'north'"):
        await scene.publish(asks(), broker="north")
    assert scene.sent() == []


async def test_r25_a_dead_letter_topic_is_refused_at_its_own_broker_only(make: Make) -> None:
    """A topic of that name at another broker is an application's."""
    scene = make("east", "west")
    assert isinstance(await scene.publish(asks("graves"), broker="west"), ReservedTopicError)
    assert isinstance(await scene.publish(asks("graves"), broker="east"), Stored)
    assert scene.sent() == ["east"]


# --- through the outbox


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """A turn takes no time here: wait for what the tasks do."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - test time: nothing waits
            await asyncio.sleep(0.01)


async def test_without_an_outbox_there_is_none(make: Make) -> None:
    assert make("east").outboxes == {}


async def test_each_broker_has_an_outbox_of_its_own(make: Make) -> None:
    scene = make("east", "west", outbox="on_request")
    assert {name: each.name for name, each in scene.outboxes.items()} == {
        "east": "east",
        "west": "west",
    }


async def gone(scene: Scene) -> Scene:
    """The cluster is known and then the broker goes away."""
    scene.up["east"].set()
    place = scene.outboxes["east"]
    await asyncio.sleep(1)
    assert not place.away()
    scene.brokers["east"].open_conditions = [AWAY]
    return scene


async def test_a_broker_is_away_until_it_has_started_and_while_it_does_not_answer(
    make: Make,
) -> None:
    """What is accepted meanwhile waits in the outbox."""
    scene = make("east", outbox="when_away")
    assert scene.outboxes["east"].away(), "it has not started"
    await gone(scene)
    assert scene.outboxes["east"].away()
    scene.brokers["east"].open_conditions = [Condition("slow", "throttled")]
    assert not scene.outboxes["east"].away(), "it answers"


async def test_what_waits_is_sent_when_its_broker_is_back(make: Make) -> None:
    scene = await gone(make("east", outbox="when_away"))
    await scene.publish(asks(value=b"kept"))
    assert scene.sent() == []
    scene.brokers["east"].open_conditions = []

    async def sent() -> bool:
        return scene.sent() == ["east"]

    await until(sent)
    assert scene.brokers["east"].stored[0].value == b"kept"


async def test_a_drain_waits_until_due_messages_are_sent(make: Make) -> None:
    scene = make("east", outbox="on_request")
    scene.up["east"].set()
    await scene.publish(later(b"first"))

    async def sends() -> bool:
        return scene.sent() == ["east"]

    await until(sends)
    lane = [Outgoing(TOPIC, b"k", b"%d" % number) for number in range(3)]
    await scene.publishing.publish(None, PublishRequest(lane, respond_async=True))
    assert len(scene.brokers["east"].stored) == 1
    await scene.publishing.drain()
    assert [each.value for each in scene.brokers["east"].stored] == [b"first", b"0", b"1", b"2"]


async def test_a_stop_lets_another_sidecar_send_at_once(make: Make) -> None:
    """The lease of an outbox that nobody gives back holds its messages up until it ends."""
    scene = make("east", outbox="on_request")
    scene.up["east"].set()
    await scene.publish(later(b"first"))

    async def sends() -> bool:
        return scene.sent() == ["east"]

    await until(sends)
    await scene.publishing.stop()
    scene.world.context = replace(scene.world.context, identity="pod-2")
    other = make("east", outbox="on_request")
    other.up["east"].set()
    await other.publish(later(b"second"))
    began_ms = scene.world.clock.monotonic_ms()

    async def goes_on() -> bool:
        return other.sent() == ["east"]

    await until(goes_on)
    assert scene.world.clock.monotonic_ms() - began_ms < LEASE_MS / 2


async def test_the_idempotency_keys_that_are_kept_are_shown(make: Make) -> None:
    """They go with time, also when nobody publishes (I8)."""
    scene = make("east")
    world, settings = scene.world, scene.settings.publish
    for key in ("one", "two", "one"):
        await scene.publish(replace(asks(), idempotency_key=key, fingerprint=b"f"))
    await asyncio.sleep(COUNT_S)
    assert world.count(KEYS, broker="east") == 2 / settings.idempotency_max
    await asyncio.sleep(settings.idempotency_ms / 1000 + COUNT_S)
    assert world.count(KEYS, broker="east") == 0
