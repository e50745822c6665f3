"""Batches of an outbox at the broker: what each answer means, and when nothing may be sent (I1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from ackd.config.schema import BrokerSettings
from ackd.core.outbox import Bounds, EnqueueRequest, NewMessage, ResultRetention
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox_codec import write_message
from ackd.engine.publishing.outbox_lease import LEASE_MS, OutboxLease
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.engine.publishing.outbox_publisher import (
    AGAIN,
    PUBLISHES_MAX,
    STOP_MS,
    OutboxPublisher,
)
from ackd.engine.publishing.outbox_queue import BATCH_MAX, OutboxQueue
from ackd.errors import BrokerError, PublishRefusedError
from ackd.ports import Failure, Outgoing, PublishResult
from tests.unit.engine.scripted import ScriptedBroker
from tests.unit.engine.world import World

BOUNDS = Bounds(10_000, 10_000_000, 60_000)
KEEP = ResultRetention(60_000, 100, 60_000)
A_MOMENT_S = 0.001


class GatedBroker(ScriptedBroker):
    """Answers while it is `open`."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.given = 0

    async def publish(self, messages: Sequence[Outgoing]) -> list[PublishResult]:
        self.given += 1
        await self.open.wait()
        return await super().publish(messages)


class Scene:
    """One sidecar with the lease. `answers`: how often it was told that a batch was answered."""

    def __init__(self, world: World, outbox_name: OutboxName) -> None:
        self.world, self.outbox_name = world, outbox_name
        self.broker, self.queue = GatedBroker(), OutboxQueue()
        self.away, self.answers = False, 0
        self.lease = self._lease("one", self.queue)
        self.publisher = OutboxPublisher(
            "main",
            self.broker,
            world.clock,
            world.metrics.publishing,
            Tasks("publisher"),
            self.queue,
            self.lease,
            lambda: self.away,
            self._answered,
        )

    def _lease(self, owner: str, queue: OutboxQueue) -> OutboxLease:
        store, clock = self.world.store, self.world.clock
        return OutboxLease("main", owner, self.outbox_name, store, clock, KEEP, queue)

    def _answered(self) -> None:
        self.answers += 1

    async def has(self, *values: bytes, key: bytes | None = None) -> None:
        """These messages were accepted and are taken."""
        messages = [Outgoing("orders", key, value) for value in values]
        bodies = tuple(NewMessage(0, write_message(each)) for each in messages)
        request = EnqueueRequest(b"", bodies)
        await self.world.store.outboxes.enqueue(self.outbox_name.name, [request], BOUNDS)
        taken = await self.lease.take(len(messages), resync=False)
        for each, message in zip(taken, messages, strict=True):
            self.queue.add(each, message)

    async def sends(self) -> None:
        """Start, and let the batches under way be answered."""
        self.publisher.send()
        await asyncio.sleep(A_MOMENT_S)

    async def other_takes_over(self) -> None:
        """The lease ends, another sidecar gets it, and this one hears of that."""
        self.world.clock.pass_ms(LEASE_MS)
        await self._lease("two", OutboxQueue()).take(1, resync=False)
        await self.lease.take(0, resync=False)

    def counted(self, result: str) -> float:
        return self.world.count("ackd_outbox_sent_total", broker="main", outcome=result)


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    up = asyncio.Event()
    up.set()
    outbox_name = OutboxName("main", BrokerSettings(adapter="scripted"), world.store, up)
    await outbox_name.find(ScriptedBroker())
    scene = Scene(world, outbox_name)
    yield scene
    scene.broker.open.set()
    await scene.publisher.stop()


async def test_what_the_broker_stored_is_finished(scene: Scene) -> None:
    await scene.has(b"a", b"b")
    await scene.sends()
    assert scene.broker.sent == [[b"a", b"b"]]
    assert (len(scene.queue), sorted(scene.queue.results)) == (0, [1, 2])
    assert not any(each.failed for each in scene.queue.results.values())
    assert (scene.counted("sent"), scene.answers) == (2, 1)


async def test_i6_the_next_of_a_lane_goes_without_waiting_for_the_store(scene: Scene) -> None:
    await scene.has(b"1", b"2", b"3", key=b"k")
    await scene.sends()
    assert scene.broker.sent == [[b"1"], [b"2"], [b"3"]]
    assert sorted(scene.queue.results) == [1, 2, 3]


async def test_a_refused_message_waits_for_an_operator_and_the_rest_goes_on(scene: Scene) -> None:
    scene.broker.fails(b"a", Failure.REFUSED)
    await scene.has(b"a", b"b")
    await scene.sends()
    assert {number: each.failed for number, each in scene.queue.results.items()} == {
        1: True,
        2: False,
    }
    assert b"scripted" in scene.queue.results[1].result
    assert (scene.counted("refused"), scene.counted("sent")) == (1, 1)


@pytest.mark.parametrize(
    ("failure", "in_doubt"), [(Failure.NOT_STORED, False), (Failure.UNKNOWN, True)]
)
async def test_i1_what_was_not_stored_goes_again_after_a_pause(
    scene: Scene, failure: Failure, *, in_doubt: bool
) -> None:
    scene.broker.fails(b"a", failure)
    await scene.has(b"a")
    await scene.sends()
    assert scene.queue.never_sent() == ([] if in_doubt else [1])
    await scene.sends()
    assert len(scene.broker.sent) == 1
    scene.world.clock.pass_ms(AGAIN.base_ms)
    await scene.sends()
    assert scene.broker.sent == [[b"a"], [b"a"]]
    assert list(scene.queue.results) == [1]
    assert (scene.counted(failure.value), scene.counted("sent")) == (1, 1)


async def test_i1_an_error_of_the_whole_call_leaves_all_of_it_in_doubt(scene: Scene) -> None:
    scene.broker.raises = BrokerError("cut off")
    await scene.has(b"a", b"b")
    await scene.sends()
    assert (len(scene.queue), scene.queue.never_sent()) == (2, [])
    assert (scene.counted("unknown"), scene.answers) == (2, 1)


async def test_i1_without_a_valid_lease_or_a_broker_nothing_is_sent(scene: Scene) -> None:
    await scene.has(b"a")
    scene.away = True
    await scene.sends()
    scene.away = False
    scene.world.clock.pass_ms(LEASE_MS)
    await scene.sends()
    assert scene.broker.given == 0
    await scene.lease.take(0, resync=False)
    await scene.sends()
    assert scene.broker.sent == [[b"a"]]


async def test_i1_an_answer_under_an_earlier_lease_finishes_nothing(scene: Scene) -> None:
    """The successor has these messages, and sends and reports them."""
    scene.broker.open.clear()
    await scene.has(b"a")
    await scene.sends()
    held = scene.queue
    await scene.other_takes_over()
    scene.broker.open.set()
    await asyncio.sleep(A_MOMENT_S)
    assert scene.broker.sent == [[b"a"]]
    assert (len(held), list(held.results), scene.counted("sent")) == (0, [], 0)
    assert not scene.publisher.busy


async def test_i8_so_many_batches_are_under_way_at_most(scene: Scene) -> None:
    scene.broker.open.clear()
    for _ in range(PUBLISHES_MAX + 1):
        await scene.has(*[b"v"] * BATCH_MAX)
    await scene.sends()
    assert (scene.broker.given, scene.publisher.busy) == (PUBLISHES_MAX, True)
    scene.broker.open.set()
    await asyncio.sleep(A_MOMENT_S)
    assert [len(each) for each in scene.broker.sent] == [BATCH_MAX] * (PUBLISHES_MAX + 1)
    assert not scene.publisher.busy


async def test_stopping_waits_for_answers_within_a_bound(scene: Scene) -> None:
    scene.broker.open.clear()
    await scene.has(b"1", b"2", key=b"k")
    await scene.sends()
    begin_ms = scene.world.clock.monotonic_ms()
    asyncio.get_running_loop().call_later(0.5, scene.broker.open.set)
    await scene.publisher.stop()
    assert 500 <= scene.world.clock.monotonic_ms() - begin_ms < STOP_MS
    assert scene.broker.sent == [[b"1"]]  # the next of its lane is not begun any more
    assert list(scene.queue.results) == [1]


async def test_a_broker_that_never_answers_does_not_hold_a_stop_up(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.broker.open.clear()
    await scene.has(b"a")
    await scene.sends()
    begin_ms = scene.world.clock.monotonic_ms()
    await scene.publisher.stop()
    assert scene.world.clock.monotonic_ms() - begin_ms <= STOP_MS + 100
    assert "may come twice" in caplog.text


async def test_a_message_can_be_refused_before_it_is_sent(scene: Scene) -> None:
    await scene.has(b"a")
    scene.publisher.refuse(1, PublishRefusedError("unreadable"))
    await scene.sends()
    assert scene.broker.given == 0
    assert scene.queue.results[1].failed
