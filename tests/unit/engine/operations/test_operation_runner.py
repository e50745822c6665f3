"""Operations: one at a time, carried out by one sidecar, continued by another one (R29)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ackd.api.dead_letters import DeadRequest, Kind, Progress
from ackd.engine.base.live import Halt, Live
from ackd.engine.base.tasks import Tasks
from ackd.engine.operations.archive import KEEP_MS, AnyDocument, NoRightError
from ackd.engine.operations.dead_letter_records import DeadLetterRecords
from ackd.engine.operations.operation_runner import RIGHT_MS, Operations
from ackd.errors import (
    BrokerError,
    OperationRunningError,
    StoreError,
    UnknownOperationError,
)
from tests.unit.engine.world import NAME, World

Step = Callable[[AnyDocument], None]


async def eventually(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Within ten minutes of test time."""
    for _ in range(12_000):
        if await condition():
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"never: {what}")


class HaltControl:
    """The one thing that operations ask of `Control`."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def end_halt(self, operation: str) -> None:
        self.ended.append(operation)


class ScriptedJob:
    """Takes one step for each attempt at a document."""

    def __init__(self, runner: Runner, document: AnyDocument) -> None:
        self._runner, self._document = runner, document

    async def run(self) -> None:
        self._runner.tries.append(self._runner.world.clock.monotonic_ms())
        step = self._runner.steps.pop(0) if self._runner.steps else done
        if step is forever:
            await asyncio.sleep(10_000)
        step(self._document)
        await self._runner.operations.archive.write(self._document)


def done(document: AnyDocument) -> None:
    document.state = Progress.DONE


def forever(document: AnyDocument) -> None:
    """Until somebody ends it."""


def fails(error: Exception, *, moved: int = 0) -> Step:
    def step(document: AnyDocument) -> None:
        document.moved += moved
        raise error

    return step


class Runner:
    """One sidecar's operations; sidecars share a store. `tries`: when each attempt began."""

    def __init__(self, world: World, *steps: Step, number: int = 7) -> None:
        self.world, self.steps = world, list(steps)
        self.tries: list[int] = []
        self.control = HaltControl()
        context = replace(world.context, random_bits=lambda _: number)
        self.operations = Operations(
            world.state,
            context,
            self.control.end_halt,
            DeadLetterRecords(context),
            lambda document, _: ScriptedJob(self, document),
        )

    async def begin(self) -> str:
        view = await self.operations.begin(DeadRequest(Kind.PURGE), b"", [(0, 9)])
        return view.id

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = Tasks("test")
        tasks.start(self.operations.run(), "operations")
        try:
            yield
        finally:
            await tasks.stop()

    async def until(self, name: str, state: Progress) -> None:
        async def there() -> bool:
            return (await self.operations.archive.read(name)).state is state

        await eventually(there, f"{name} to be {state}")


async def tried(runner: Runner, count: int) -> None:
    async def there() -> bool:
        return len(runner.tries) >= count

    await eventually(there, f"{count} tries")


async def test_one_at_a_time(world: World) -> None:
    """Whoever begins the second one learns which is running; of its own nothing is left."""
    one, two = Runner(world), Runner(world, number=8)
    name = await one.begin()
    with pytest.raises(OperationRunningError) as refused:
        await two.begin()
    assert refused.value.facts["operation"] == name
    with pytest.raises(UnknownOperationError):
        await two.operations.archive.read(f"{8:016x}")
    assert await listed(two) == [name]
    async with one.running():
        await one.until(name, Progress.DONE)
        await eventually(lambda: free(world), "the place to be free")
    second = await two.begin()
    assert await listed(one) == [second, name]


async def listed(runner: Runner) -> list[str]:
    return [each.id for each in await runner.operations.listed()]


async def free(world: World) -> bool:
    return await world.store.get(f"dead-operation:cluster:{NAME}") is None


async def test_the_result_can_be_read_for_a_week(world: World) -> None:
    one = Runner(world)
    name = await one.begin()
    world.clock.pass_ms(2 * KEEP_MS)
    assert (await one.operations.archive.view(name)).state == "running"
    document = await one.operations.archive.read(name)
    document.state = Progress.DONE
    await one.operations.archive.write(document)
    world.clock.pass_ms(KEEP_MS - 1)
    assert (await one.operations.archive.view(name)).state == "done"
    assert await listed(one) == [name]
    world.clock.pass_ms(1)
    with pytest.raises(UnknownOperationError):
        await one.operations.archive.view(name)


async def test_a_place_whose_operation_is_unknown_is_free(world: World) -> None:
    """Its sidecar died between its two writes, or the store lost one of them."""
    await world.store.put(f"dead-operation:cluster:{NAME}", b"gone")
    one = Runner(world)
    name = await one.begin()
    async with one.running():
        await one.until(name, Progress.DONE)


async def test_another_sidecar_goes_on_when_the_right_has_run_out(world: World) -> None:
    """I5: not before, as the first one may be slow only."""
    one, two = Runner(world, forever), Runner(world, number=8)
    name = await one.begin()
    tasks = Tasks("one")
    tasks.start(one.operations.run(), "operations")
    await tried(one, 1)
    began_ms = one.tries[0]
    async with two.running():
        await two.until(name, Progress.DONE)
        assert two.tries[0] - began_ms >= RIGHT_MS
        await world.store.put(f"dead-operation:cluster:{NAME}:runner", b"two", RIGHT_MS)
        with pytest.raises(NoRightError):
            await one.operations.keep_right()
    await tasks.stop()


async def test_who_stops_gives_the_right_back(world: World) -> None:
    one, two = Runner(world, forever), Runner(world, number=8)
    name = await one.begin()
    async with one.running():
        await tried(one, 1)
    async with two.running():
        await two.until(name, Progress.DONE)
    assert two.tries[0] - one.tries[0] < RIGHT_MS


async def test_a_failure_is_told_and_tried_again_ever_more_slowly(world: World) -> None:
    """But soon after each try that got on. The right is renewed meanwhile."""
    error = BrokerError("away")
    one = Runner(world, *[fails(error)] * 5, fails(error, moved=3), fails(error))
    two = Runner(world, number=8)
    name = await one.begin()
    async with one.running(), two.running():
        await tried(one, 3)
        found = await one.operations.archive.view(name)
        assert (found.state, found.error) == ("running", "broker-unavailable: away")
        await one.until(name, Progress.DONE)
    pauses = [(b - a) / 1000 for a, b in zip(one.tries, one.tries[1:], strict=False)]
    assert pauses == [2, 4, 8, 8, 8, 1, 2]
    assert two.tries == []


async def test_an_operation_that_only_fails_can_be_cancelled(world: World) -> None:
    one = Runner(world, *[fails(BrokerError("away"))] * 100)
    name = await one.begin()
    async with one.running():
        await tried(one, 2)
        await one.operations.archive.cancel(name)
        assert (await one.operations.archive.view(name)).state == "cancelling"
        await one.until(name, Progress.CANCELLED)


async def test_without_the_store_it_goes_on_later(world: World) -> None:
    one = Runner(world, fails(StoreError("away")))
    name = await one.begin()
    async with one.running():
        await tried(one, 1)
        world.store.away = True
        await asyncio.sleep(60)
        world.store.away = False
        await one.until(name, Progress.DONE)


@pytest.mark.parametrize("there", [True, False])
async def test_a_halt_ends_with_its_operation(world: World, *, there: bool) -> None:
    """Its runner may have died between the two; also one that nobody knows any more."""
    one = Runner(world)
    name = await one.begin()
    world.state.live = Live(halt=Halt(name if there else "gone", 1))
    async with one.running():

        async def ended() -> bool:
            return bool(one.control.ended)

        await eventually(ended, "the halt to end")
    assert set(one.control.ended) == {name if there else "gone"}


async def test_a_halt_stays_while_its_operation_runs(world: World) -> None:
    one, two = Runner(world, forever), Runner(world, number=8)
    world.state.live = Live(halt=Halt(await one.begin(), 1))
    async with one.running():
        await tried(one, 1)
        async with two.running():
            await asyncio.sleep(RIGHT_MS / 2_000)
    assert two.control.ended == []
