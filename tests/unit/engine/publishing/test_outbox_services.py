"""The outboxes of all brokers: what the API shows of them, and how requests go into the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from ackd.api.messages import Accepted
from ackd.api.outbox import OutboxView
from ackd.config.schema import BrokerSettings, PublishSettings
from ackd.core.outbox import Bounds, EnqueueRequest, EnqueueResult
from ackd.engine.base.tasks import Tasks
from ackd.engine.publishing.outbox import (
    BATCH_BYTES_MAX,
    REQUESTS_MAX,
    OutboxService,
    OutboxServices,
)
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.errors import NotFailedError, StoreError, StoreUnknownError, UnknownOutboxMessageError
from ackd.ports import Failure, Outgoing
from ackd.store.memory_outbox import MemoryOutboxes
from tests.unit.engine.scripted import ScriptedBroker
from tests.unit.engine.world import ME, TestStore, World

TURNS_S = 2
"""In this time each outbox has had a turn, also one that has nothing to do."""


class HeldOutboxes(MemoryOutboxes):
    """Takes requests when it is let. `calls`: how many came in each call. `fails`: errors of the
    next calls.
    """

    def __init__(self, store: TestStore, clock_us: list[int]) -> None:
        super().__init__(store.data.outboxes, lambda: clock_us[0], store.run)
        self.go = asyncio.Event()
        self.go.set()
        self.calls: list[int] = []
        self.fails: list[StoreError] = []

    async def enqueue(
        self, name: str, requests: Sequence[EnqueueRequest], bounds: Bounds
    ) -> list[EnqueueResult]:
        self.calls.append(len(requests))
        await self.go.wait()
        if self.fails:
            raise self.fails.pop()
        return await super().enqueue(name, requests, bounds)


class HeldStore(TestStore):
    """Its outboxes are `held`."""

    held: HeldOutboxes

    @property
    def outboxes(self) -> MemoryOutboxes:
        return self.held


class Scene:
    """Outboxes of the brokers `east` and `west`, in one store."""

    def __init__(self, world: World) -> None:
        self.clock = world.clock
        self.store = HeldStore(world.clock)
        self.store.held = self.held = HeldOutboxes(self.store, [world.clock.now_us])
        self.context = replace(world.context, store=self.store)
        self.brokers = {name: ScriptedBroker() for name in ("east", "west")}
        self.away: set[str] = set()
        self.tasks = Tasks("outboxes")
        self.services = {name: self.service(name) for name in self.brokers}
        self.api = OutboxServices(self.services)

    def service(self, name: str, *, up: bool = True) -> OutboxService:
        """`up`: its broker was reached."""
        reached, broker = asyncio.Event(), self.brokers.setdefault(name, ScriptedBroker())
        if up:
            reached.set()
        place = OutboxName(name, BrokerSettings(adapter="scripted"), self.store, reached)
        self.tasks.start(place.find(broker), f"{name} place")
        return OutboxService(
            name, broker, PublishSettings(), self.context, place, lambda: name in self.away
        )

    def run(self) -> None:
        for name, each in self.services.items():
            self.tasks.start(each.run(), name)

    async def stop(self) -> None:
        for each in self.services.values():
            await each.stop()
        await self.tasks.stop()

    async def accepts(self, name: str, *values: bytes, delay_ms: int = 0) -> list[int]:
        messages = [Outgoing("t", None, value, delay_ms=delay_ms) for value in values]
        accepted, _ = await self.services[name].accept(messages, b"")
        return [each.number for each in accepted]

    def asks(self, *values: bytes) -> asyncio.Task[tuple[list[Accepted], bool]]:
        """A request to `east` that somebody waits for."""
        messages = [Outgoing("t", None, value) for value in values]
        return asyncio.get_running_loop().create_task(self.services["east"].accept(messages, b""))

    def backlog(self, name: str) -> bool:
        return self.services[name].backlog

    def view(self, name: str) -> OutboxView:
        (found,) = (each for each in self.api.views() if each.broker == name)
        return found


@pytest.fixture
async def scene(world: World) -> AsyncIterator[Scene]:
    scene = Scene(world)
    await asyncio.sleep(0)  # the names are found
    yield scene
    scene.held.go.set()
    await scene.stop()


# --- what the API shows ---------------------------------------------------------------------------


async def test_the_outbox_of_each_broker_is_shown(scene: Scene) -> None:
    scene.run()
    scene.away.add("west")
    await scene.accepts("west", b"abc", b"d")
    (later,) = await scene.accepts("east", b"abc", delay_ms=60_000)
    await asyncio.sleep(TURNS_S)
    assert [each.broker for each in scene.api.views()] == ["east", "west"]
    east, west = scene.view("east"), scene.view("west")
    assert (east.sender, west.sender) == (ME, "")
    assert (east.waiting, east.due, east.held, east.failed) == (1, 0, 0, 0)
    assert (west.waiting, west.due, west.held) == (2, 2, 0)
    assert east.next_due_ms == (await scene.api.message("east", later)).due_ms
    assert east.bytes > 0
    assert west.next_due_ms is not None
    assert (east.detail, west.detail) == ("", "the broker is away")


async def test_an_outbox_says_that_its_broker_was_never_reached(scene: Scene) -> None:
    scene.services["north"] = scene.service("north", up=False)
    scene.run()
    await asyncio.sleep(TURNS_S)
    assert scene.view("north").detail == "the broker was never reached"


async def test_a_message_is_found_by_broker_and_number(scene: Scene) -> None:
    scene.run()
    east = await scene.accepts("east", b"a")
    west = await scene.accepts("west", b"b", delay_ms=60_000)
    await asyncio.sleep(TURNS_S)
    assert east == west
    sent = await scene.api.message("east", east[0])
    waits = await scene.api.message("west", west[0])
    assert (sent.id, sent.state, sent.message) == (f"east/{east[0]}", "sent", "t/0/0")
    assert (waits.id, waits.state, waits.message) == (f"west/{west[0]}", "waiting", None)


@pytest.mark.parametrize("broker", ["north", ""])
async def test_there_is_no_outbox_for_an_unknown_broker(scene: Scene, broker: str) -> None:
    with pytest.raises(UnknownOutboxMessageError, match="no outbox"):
        await scene.api.message(broker, 1)
    with pytest.raises(UnknownOutboxMessageError, match="no outbox"):
        await scene.api.again(broker, 1)


async def test_an_unknown_number_is_told_apart_from_one_that_did_not_fail(scene: Scene) -> None:
    scene.run()
    (number,) = await scene.accepts("east", b"a")
    with pytest.raises(UnknownOutboxMessageError):
        await scene.api.message("east", number + 1)
    with pytest.raises(UnknownOutboxMessageError):
        await scene.api.again("east", number + 1)
    await asyncio.sleep(TURNS_S)
    with pytest.raises(NotFailedError, match=f"east/{number} is sent"):
        await scene.api.again("east", number)


async def test_a_failed_message_is_sent_again_at_once(scene: Scene) -> None:
    scene.run()
    scene.brokers["west"].fails(b"a", Failure.REFUSED)
    (number,) = await scene.accepts("west", b"a")
    await asyncio.sleep(TURNS_S)
    assert (await scene.api.message("west", number)).state == "failed"
    assert scene.view("west").failed == 1
    assert (await scene.api.again("west", number)).state == "waiting"
    assert scene.backlog("west")
    await asyncio.sleep(0.1)
    assert (await scene.api.message("west", number)).state == "sent"
    assert not scene.backlog("west")


async def test_a_backlog_is_what_is_due_and_not_sent(scene: Scene) -> None:
    scene.run()
    assert not scene.backlog("east")
    await scene.accepts("east", b"later", delay_ms=60_000)
    await asyncio.sleep(TURNS_S)
    assert not scene.backlog("east")
    scene.brokers["east"].fails(b"a", *[Failure.NOT_STORED] * 100)
    await scene.accepts("east", b"a")
    assert scene.backlog("east")  # accepted here, before any turn
    await asyncio.sleep(TURNS_S)
    assert scene.backlog("east")  # it is tried in vain
    assert scene.view("east").held == 1


# --- into the store -------------------------------------------------------------------------------


async def test_requests_that_come_during_a_call_share_the_next_one(scene: Scene) -> None:
    scene.held.go.clear()
    first = scene.asks(b"a")
    await asyncio.sleep(0.001)
    others = [scene.asks(b"b", b"c"), scene.asks(b"d")]
    await asyncio.sleep(0.001)
    scene.held.go.set()
    found = [[each.number for each in (await asked)[0]] for asked in (first, *others)]
    one = found[0][0]
    assert found == [[one], [one + 1, one + 2], [one + 3]]
    assert scene.held.calls == [1, 2]


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([1] * (REQUESTS_MAX + 3), [REQUESTS_MAX, 3]),
        ([BATCH_BYTES_MAX // 2] * 3, [2, 1]),
        ([BATCH_BYTES_MAX + 1, 1], [1, 1]),
    ],
)
async def test_i8_a_call_is_bounded(scene: Scene, sizes: list[int], calls: list[int]) -> None:
    """A request that is larger than a call may be goes alone."""
    scene.held.go.clear()
    first = scene.asks(b"a")
    await asyncio.sleep(0.001)
    asked = [scene.asks(bytes(size)) for size in sizes]
    await asyncio.sleep(0.001)
    scene.held.go.set()
    await asyncio.gather(first, *asked)
    assert scene.held.calls == [1, *calls]


async def test_i7_a_failed_call_is_an_error_for_all_its_requests_and_no_others(
    scene: Scene,
) -> None:
    scene.held.go.clear()
    first, second = scene.asks(b"a"), scene.asks(b"b")
    await asyncio.sleep(0.001)
    later = scene.asks(b"c")
    await asyncio.sleep(0.001)
    scene.held.fails = [StoreUnknownError("no answer")]
    scene.held.go.set()
    found = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in found] == [StoreUnknownError] * 2
    assert found[0] is not found[1]
    (accepted,), _ = await later
    assert (await scene.api.message("east", accepted.number)).state == "waiting"
    assert scene.held.calls == [2, 1]


async def test_i7_at_a_stop_what_is_under_way_is_unknown_and_what_waits_was_not_stored(
    scene: Scene,
) -> None:
    scene.held.go.clear()
    under_way = scene.asks(b"a")
    await asyncio.sleep(0.001)
    waits = scene.asks(b"b")
    await asyncio.sleep(0.001)
    await scene.services["east"].stop()
    with pytest.raises(StoreUnknownError, match="stopped in mid-call"):
        await under_way
    with pytest.raises(StoreError, match="stopped") as error:
        await waits
    assert not isinstance(error.value, StoreUnknownError)
    assert scene.held.calls == [1]


async def test_a_caller_that_has_gone_holds_up_nobody(scene: Scene) -> None:
    scene.held.go.clear()
    gone, stays = scene.asks(b"a"), scene.asks(b"b")
    await asyncio.sleep(0.001)
    gone.cancel()
    await asyncio.sleep(0.001)
    scene.held.go.set()
    (accepted,), _ = await stays
    assert (await scene.api.message("east", accepted.number)).state == "waiting"
    assert (await scene.api.message("east", accepted.number - 1)).state == "waiting"
