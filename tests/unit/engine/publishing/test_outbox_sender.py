"""The loop over an outbox: takes the lease and gives it back, says what it does, ends in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ackd.config.schema import BrokerSettings, PublishSettings
from ackd.core.outbox import Bounds, EnqueueRequest, MessageStatus, NewMessage, TakeRequest
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox_codec import write_message
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.engine.publishing.outbox_sender import IDLE_POLL_MS, IDLE_RELEASE_MS, OutboxSender
from ackd.errors import StoreUnknownError
from ackd.ports import Failure, Outgoing
from tests.unit.engine.scripted import ScriptedBroker
from tests.unit.engine.world import ME, World

BOUNDS = Bounds(100, 1_000_000, 60_000)


class Scene:
    """One outbox in the store. `sender`: of this sidecar, which runs once it is `started`."""

    def __init__(self, world: World) -> None:
        self.world, self.broker, self.away = world, ScriptedBroker(), False
        self.up, self.tasks = asyncio.Event(), Tasks("senders")
        settings = BrokerSettings(adapter="scripted")
        self.outbox_name = OutboxName("main", settings, world.store, self.up)
        self.tasks.start(self.outbox_name.find(self.broker), "name", ends=True)
        self.sender = self.another(ME)

    def another(self, name: str) -> OutboxSender:
        """A sender, at the sidecar of this name."""
        context = replace(self.world.context, identity=name)
        return OutboxSender(
            "main", self.broker, PublishSettings(), context, self.outbox_name, lambda: self.away
        )

    async def starts(self, sender: OutboxSender | None = None) -> None:
        self.up.set()
        self.tasks.start((sender or self.sender).run(), "sender")
        await passes(IDLE_POLL_MS + 100)

    async def accepts(self, *bodies: bytes, delay_ms: int = 0) -> int:
        """These go into the store; returns the first one's number."""
        messages = tuple(NewMessage(delay_ms, body) for body in bodies)
        request = EnqueueRequest(b"", messages)
        outboxes = self.world.store.outboxes
        (found,) = await outboxes.enqueue(self.outbox_name.name, [request], BOUNDS)
        self.sender.accepted(delay_ms)
        return found.first

    async def status(self, number: int) -> MessageStatus:
        return await self.world.store.outboxes.status(self.outbox_name.name, number)


def body(value: bytes, key: bytes | None = None) -> bytes:
    return write_message(Outgoing("orders", key, value))


async def passes(ms: int) -> None:
    """Test time goes on."""
    await asyncio.sleep(ms / 1_000)


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    yield scene
    await scene.sender.stop()
    await scene.tasks.stop()


async def test_what_is_due_is_sent_at_once_and_what_is_delayed_when_it_is_due(
    scene: Scene,
) -> None:
    await scene.starts()
    later = await scene.accepts(body(b"later"), delay_ms=5_000)
    await scene.accepts(body(b"now"))
    await passes(50)
    assert scene.broker.sent == [[b"now"]]
    assert (await scene.status(later)).state == "waiting"
    await passes(4_900)
    assert scene.broker.sent == [[b"now"]]
    await passes(100)
    assert scene.broker.sent == [[b"now"], [b"later"]]
    await passes(100)
    assert (await scene.status(later)).state == "sent"


async def test_until_the_broker_is_reached_nothing_is_asked_of_the_store(scene: Scene) -> None:
    scene.tasks.start(scene.sender.run(), "sender")
    await passes(5_000)
    assert scene.sender.view().detail == "the broker was never reached"
    scene.up.set()
    await passes(IDLE_POLL_MS)
    assert scene.sender.view().detail == ""


async def test_who_has_nothing_to_do_for_long_gives_the_lease_back(scene: Scene) -> None:
    """So a sidecar that stops for good leaves nothing to wait for."""
    await scene.starts()
    await scene.accepts(body(b"a"))
    await passes(IDLE_RELEASE_MS - 1_000)
    assert scene.sender.view().sender == ME
    await passes(1_000 + 2 * IDLE_POLL_MS)
    assert scene.sender.view().sender == ""
    message = EnqueueRequest(b"", (NewMessage(0, body(b"b")),))
    outboxes, name = scene.world.store.outboxes, scene.outbox_name.name
    await outboxes.enqueue(name, [message], BOUNDS)  # by another sidecar
    assert (await outboxes.take(name, TakeRequest("pod-2", 0, 1, 1), 1, 99)).term > 0


async def test_a_body_that_nobody_can_read_fails_alone(scene: Scene) -> None:
    await scene.starts()
    bad = await scene.accepts(b"\xc1 no message", body(b"good"))
    await passes(200)
    assert scene.broker.sent == [[b"good"]]
    found = await scene.status(bad)
    assert found.state == "failed"
    assert b"unreadable" in found.result


async def test_a_second_sidecar_waits_for_the_lease_and_says_who_has_it(scene: Scene) -> None:
    await scene.starts()
    await scene.accepts(body(b"later"), delay_ms=60_000)
    await passes(IDLE_POLL_MS)
    other = scene.another("pod-2")
    await scene.starts(other)
    assert (other.view().sender, scene.sender.view().sender) == (ME, ME)
    await scene.sender.stop()
    await scene.accepts(body(b"a"))
    await passes(IDLE_POLL_MS + 200)
    assert other.view().sender == "pod-2"
    assert scene.broker.sent == [[b"a"]]
    await other.stop()


async def test_a_store_that_is_away_is_said_and_sending_goes_on_when_it_is_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.starts()
    outboxes = type(scene.world.store.outboxes)
    plain = outboxes.take

    async def lost(*_: object) -> None:
        raise StoreUnknownError("no answer")

    monkeypatch.setattr(outboxes, "take", lost)
    await scene.accepts(body(b"a"))
    await passes(2_000)
    assert scene.sender.view().detail == "no answer"
    assert scene.broker.sent == []
    monkeypatch.setattr(outboxes, "take", plain)
    await passes(IDLE_POLL_MS + 100)
    assert (scene.broker.sent, scene.sender.view().detail) == ([[b"a"]], "")


async def test_draining_ends_when_all_that_is_due_is_sent(scene: Scene) -> None:
    await scene.starts()
    await scene.accepts(*[body(b"%d" % number, b"k") for number in range(3)])
    await scene.accepts(body(b"later"), delay_ms=60_000)
    assert scene.sender.backlog
    await asyncio.wait_for(scene.sender.drain(), 5)
    assert (scene.sender.backlog, scene.broker.sent) == (False, [[b"0"], [b"1"], [b"2"]])


async def test_draining_does_not_wait_for_what_fails(scene: Scene) -> None:
    await scene.starts()
    scene.broker.fails(b"a", *[Failure.NOT_STORED] * 1_000)
    await scene.accepts(body(b"a"))
    await asyncio.wait_for(scene.sender.drain(), 5)
    assert scene.sender.backlog


async def test_gauges_show_what_waits_here_and_in_the_store(scene: Scene) -> None:
    await scene.starts()
    scene.broker.fails(b"a", *[Failure.NOT_STORED] * 1_000)
    await scene.accepts(body(b"a"))
    await scene.accepts(body(b"later"), delay_ms=60_000)
    await passes(1_000)
    count = scene.world.count
    assert count("ackd_outbox_waiting", broker="main") == 2
    assert count("ackd_outbox_due", broker="main") == 1
    assert count("ackd_outbox_bytes", broker="main") > 0
