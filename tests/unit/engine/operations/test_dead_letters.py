"""Dead letters of all subscriptions: who asks for what, how many look at once, operations by id."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from ackd.api.dead_letters import (
    DeadLetter,
    DeadPage,
    DeadRequest,
    DryRun,
    Kind,
    OperationView,
    Progress,
)
from ackd.engine.operations.archive import RedriveDocument
from ackd.engine.operations.dead_letters import READERS_MAX, DeadLetters
from ackd.engine.operations.subscription_dead_letters import LogBounds, SubscriptionDeadLetters
from ackd.engine.parts_by_name import ByName
from ackd.errors import (
    BadParameterError,
    BrokerError,
    PressureError,
    UnknownOperationError,
    UnknownSubscriptionError,
)
from tests.unit.engine.operation_stage import OperationStage
from tests.unit.engine.world import NAME, World

BOUNDS = LogBounds(b"\x01", [(0, 9)])


class Letters:
    """Stands for `SubscriptionDeadLetters`: it notes what it is asked, and answers when let go."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.looking = 0
        self.go = asyncio.Event()
        self.go.set()
        self.fails: Exception | None = None

    async def _look(self, *asked: object) -> None:
        self.asked.append(asked)
        self.looking += 1
        try:
            await self.go.wait()
            if self.fails is not None:
                raise self.fails
        finally:
            self.looking -= 1

    async def page(self, partition: int, offset: int, limit: int) -> DeadPage:
        await self._look("page", partition, offset, limit)
        return DeadPage([])

    async def peek(self, dead_id: str) -> DeadLetter:
        await self._look("peek", dead_id)
        raise NotImplementedError

    def check(self, request: DeadRequest) -> None:
        if request.confirm == "wrong":
            raise BadParameterError("confirm")

    async def look(self, request: DeadRequest) -> DryRun | LogBounds:
        await self._look("look")
        return DryRun(1, 1, complete=True) if request.dry_run else BOUNDS

    async def begin(self, request: DeadRequest, bounds: LogBounds) -> OperationView:
        self.asked.append(("begin", bounds))
        return RedriveDocument("op", NAME, request, "01", [0], [9], 1).view()


class Scene(OperationStage):
    """One subscription."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.letters = Letters()
        table = ByName({NAME: cast("SubscriptionDeadLetters", self.letters)})
        self.dead = DeadLetters(table, world.store, world.clock)


@pytest.fixture
async def scene(world: World) -> Scene:
    return Scene(world)


async def test_a_page_begins_at_its_cursor(scene: Scene) -> None:
    await scene.dead.page(NAME, None, 50)
    await scene.dead.page(NAME, "3-17", 20)
    assert scene.letters.asked == [("page", 0, 0, 50), ("page", 3, 17, 20)]


async def test_bad_ids_and_cursors_do_not_reach_the_broker(scene: Scene) -> None:
    with pytest.raises(BadParameterError):
        await scene.dead.page(NAME, "3:17", 20)
    with pytest.raises(BadParameterError):
        await scene.dead.peek(NAME, "x")
    with pytest.raises(BadParameterError):
        await scene.dead.begin(NAME, DeadRequest(Kind.PURGE, confirm="wrong"))
    assert scene.letters.asked == []


async def test_a_subscription_that_is_not_here_is_named(scene: Scene) -> None:
    with pytest.raises(UnknownSubscriptionError, match="'orders'"):
        await scene.dead.page("orders", None, 1)
    with pytest.raises(UnknownSubscriptionError, match="'orders'"):
        await scene.dead.peek("orders", "0-1")
    with pytest.raises(UnknownSubscriptionError, match="'orders'"):
        await scene.dead.begin("orders", DeadRequest(Kind.REDRIVE))


async def test_i8_only_so_many_read_at_once(scene: Scene) -> None:
    """Each opens a client at the broker. One more is refused, and none waits."""
    scene.letters.go.clear()
    async with asyncio.TaskGroup() as group:
        for _ in range(READERS_MAX):
            group.create_task(scene.dead.page(NAME, None, 1))
        await asyncio.sleep(0)
        assert scene.letters.looking == READERS_MAX
        for refused in (
            scene.dead.page(NAME, None, 1),
            scene.dead.peek(NAME, "0-1"),
            scene.dead.begin(NAME, DeadRequest(Kind.REDRIVE)),
        ):
            with pytest.raises(PressureError):
                await refused
        scene.letters.go.set()
    await scene.dead.page(NAME, None, 1)


async def test_a_reader_that_fails_or_is_cancelled_makes_room(scene: Scene) -> None:
    scene.letters.fails = BrokerError("away")
    for _ in range(READERS_MAX + 1):
        with pytest.raises(BrokerError):
            await scene.dead.peek(NAME, "0-1")
    scene.letters.go.clear()
    for _ in range(READERS_MAX + 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await scene.dead.page(NAME, None, 1)
    assert scene.letters.looking == 0


async def test_a_dry_run_begins_nothing(scene: Scene) -> None:
    found = await scene.dead.begin(NAME, DeadRequest(Kind.REDRIVE, dry_run=True))
    assert isinstance(found, DryRun)
    assert scene.letters.asked == [("look",)]


async def test_what_begins_is_bounded_by_what_was_looked_at(scene: Scene) -> None:
    found = await scene.dead.begin(NAME, DeadRequest(Kind.REDRIVE))
    assert isinstance(found, OperationView)
    assert scene.letters.asked == [("look",), ("begin", BOUNDS)]


# --- operations


async def test_an_operation_is_found_by_its_id_at_any_sidecar(scene: Scene) -> None:
    document = RedriveDocument("op", NAME, DeadRequest(Kind.REDRIVE), "01", [0], [9], 1)
    await scene.archive.write(document)
    view = await scene.dead.operation("op")
    assert (view.id, view.state, view.total) == ("op", "running", 9)
    with pytest.raises(UnknownOperationError):
        await scene.dead.operation("other")


async def test_a_cancel_is_seen_by_whoever_carries_it_out(scene: Scene) -> None:
    document = RedriveDocument("op", NAME, DeadRequest(Kind.REDRIVE), "01", [0], [9], 1)
    await scene.archive.write(document)
    assert (await scene.dead.cancel("op")).state == "cancelling"
    assert await scene.archive.cancelled("op")


async def test_what_has_ended_can_t_be_cancelled_any_more(scene: Scene) -> None:
    document = RedriveDocument("op", NAME, DeadRequest(Kind.REDRIVE), "01", [0], [9], 1)
    document.state = Progress.DONE
    await scene.archive.write(document)
    assert (await scene.dead.cancel("op")).state == "done"


async def test_a_cancel_of_no_operation_leaves_no_mark(scene: Scene) -> None:
    """An operation that begins later under this id would end at once."""
    with pytest.raises(UnknownOperationError):
        await scene.dead.cancel("op")
    assert not await scene.archive.cancelled("op")
