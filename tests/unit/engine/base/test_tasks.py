"""Background tasks: which of them a sidecar can't live without, and who hears of their end."""

import asyncio

import pytest

from ackd.engine.base.tasks import Tasks, Vitals, endless
from ackd.errors import BugError


async def broken() -> None:
    raise ValueError("what nobody foresaw")


async def forever() -> None:
    await asyncio.Event().wait()


async def done() -> None:
    await asyncio.sleep(0)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_first_failure_is_told(caplog: pytest.LogCaptureFixture) -> None:
    vitals = Vitals()
    tasks = Tasks("engine", vitals)
    tasks.start(broken(), "first")
    tasks.start(broken(), "second")
    await asyncio.wait_for(vitals.wait(), 5)
    await turns()
    assert vitals.failure == "engine.first has ended (ValueError: what nobody foresaw)"
    assert [each.message for each in caplog.records] == [
        "engine.first failed",
        "engine.second failed",
    ]


async def test_what_is_not_vital_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    vitals = Vitals()
    Tasks("engine", vitals).start(broken(), "figures", vital=False)
    Tasks("alone").start(broken(), "any")
    await turns()
    assert not vitals.failure
    assert [each.message for each in caplog.records] == [
        "engine.figures failed",
        "alone.any failed",
    ]


async def test_an_orderly_end_is_no_failure() -> None:
    vitals = Vitals()
    tasks = Tasks("engine", vitals)
    tasks.start(done(), "short", ends=True)
    tasks.start(forever(), "long")
    await turns()
    await tasks.stop()
    assert not vitals.failure


async def test_a_task_that_somebody_else_cancels_is_gone_as_well() -> None:
    """A library that lets a CancelledError out ends its caller like any other error."""
    vitals = Vitals()
    tasks = Tasks("engine", vitals)

    async def cancelled() -> None:
        raise asyncio.CancelledError

    tasks.start(cancelled(), "long")
    await turns()
    assert vitals.failure == "engine.long has ended (cancelled)"


async def test_a_loop_that_returns_is_gone_as_well() -> None:
    vitals = Vitals()
    tasks = Tasks("engine", vitals)
    tasks.start(done(), "figures", vital=False)
    tasks.start(done(), "long")
    await turns()
    assert vitals.failure == "engine.long has ended (it has returned)"


async def test_a_loop_may_return_once_it_was_told_to_end() -> None:
    vitals = Vitals()
    tasks = Tasks("engine", vitals)
    tasks.let_end()
    tasks.start(done(), "loop")
    await turns()
    assert not vitals.failure


async def test_a_loop_that_fails_is_told_also_once_it_may_return() -> None:
    vitals = Vitals()
    tasks = Tasks("engine", vitals)
    tasks.let_end()
    tasks.start(broken(), "broken")
    await turns()
    assert vitals.failure == "engine.broken has ended (ValueError: what nobody foresaw)"


async def test_a_task_group_ends_with_a_loop_that_returns() -> None:
    async def loops() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(endless(forever))
            group.create_task(endless(done))

    with pytest.raises(ExceptionGroup) as found:
        await loops()
    assert found.group_contains(BugError, match="done has returned")
