"""A group is moved, on purpose and as a whole: what comes again, what stays (I3, R6, R8)."""

from __future__ import annotations

import asyncio

import pytest

from ackd.api.dead_letters import OperationView
from ackd.api.messages import Delivery, SettleVerb
from ackd.api.progress import Position, SeekPlan, SeekRequest, SeekTo
from ackd.engine.runtime import Runtime
from ackd.errors import (
    BadParameterError,
    NothingToUndoError,
    NotPausedError,
    OperationRunningError,
)
from tests.integration.engine.linked import WITH_PARTITIONS
from tests.integration.engine.test_send_back import NAME, Place, Sidecar
from tests.integration.engine.test_send_back import place as place  # noqa: PLC0414  the fixture
from tests.support.wait import wait_until_async

ONE_BROKER = pytest.mark.parametrize("place", ["local"], indirect=True)
"""For what does not depend on the broker."""
EVERY_BROKER = pytest.mark.parametrize("place", WITH_PARTITIONS, indirect=True)
"""That has positions."""
EARLIEST = SeekRequest(SeekTo.EARLIEST)
LATEST = SeekRequest(SeekTo.LATEST)
UNDO = SeekRequest(SeekTo.BEFORE_RESET)
SLOW_MS = 60_000
"""Nothing is sent back."""


async def pause(runtime: Runtime) -> None:
    """For the group."""
    await runtime.pause(NAME, "group", "test", None)


async def resume(runtime: Runtime) -> None:
    """For the group."""
    await runtime.resume(NAME, "group")


async def ended(runtime: Runtime, operation: SeekPlan | OperationView) -> OperationView:
    """Wait for its end."""
    assert isinstance(operation, OperationView)
    seen = [operation]

    async def over() -> bool:
        seen.append(await runtime.dead.operation(operation.id))
        return seen[-1].state not in ("running", "cancelling")

    await wait_until_async(over, "the operation to end", timeout_s=60)
    return seen[-1]


async def seek(runtime: Runtime, request: SeekRequest) -> OperationView:
    """To its end, and on."""
    await pause(runtime)
    view = await ended(runtime, await runtime.progress.seek(NAME, request))
    assert view.state == "done", view
    await resume(runtime)
    return view


async def plan(sidecar: Sidecar, request: SeekRequest) -> tuple[int, int, int, int, int]:
    """(from, to, again, skipped, leases kept) of the one partition."""
    dry = SeekRequest(
        request.to, request.time_ms, request.positions, request.increase_only, dry_run=True
    )
    found = await sidecar.runtime.progress.seek(NAME, dry)
    assert isinstance(found, SeekPlan)
    (one,) = found.partitions
    assert (found.again, found.skipped, found.leases_kept) == (
        one.again,
        one.skipped,
        one.leases_kept,
    )
    return one.from_offset, one.to_offset, one.again, one.skipped, one.leases_kept


def offsets(messages: list[Delivery]) -> list[int]:
    """Sorted."""
    return sorted(int(each.id.rpartition("/")[2]) for each in messages)


def at(sidecar: Sidecar, offset: int, *finished: tuple[int, int]) -> tuple[Position, ...]:
    """The one partition."""
    return (Position(sidecar.place.topic, 0, offset, finished),)


@EVERY_BROKER
async def test_back_and_ahead_and_undone(place: Place) -> None:
    sidecar = await place.start(stuck_after_ms=SLOW_MS)
    with pytest.raises(NothingToUndoError):
        await plan(sidecar, UNDO)
    await sidecar.publish(20)
    messages = await sidecar.collect(20, lease_ms=60_000)
    # 0-9, 12 and 13 are done, 15 is under lease, the others are free again.
    done = [m for m in messages if offsets([m])[0] in {*range(10), 12, 13}]
    await sidecar.settle(done, SettleVerb.ACK)
    free = [m for m in messages if m not in done and offsets([m]) != [15]]
    await sidecar.settle(free, SettleVerb.RELEASE)
    held = next(m for m in messages if offsets([m]) == [15])
    with pytest.raises(NotPausedError):
        await sidecar.runtime.progress.seek(NAME, EARLIEST)
    await sidecar.until_watermark(10)
    assert await plan(sidecar, EARLIEST) == (10, 0, 12, 0, 1)
    assert await plan(sidecar, LATEST) == (10, 20, 0, 8, 0)
    back = SeekRequest(SeekTo.POSITIONS, positions=at(sidecar, 5, (6, 8), (12, 13)))
    assert await plan(sidecar, back) == (10, 5, 4, 0, 1)  # 5, 8, 9 and 13
    view = await seek(sidecar.runtime, back)
    assert (view.kind, view.to, view.total, view.moved) == ("seek", "positions", 1, 1)
    # The lease lives on, and it is the one holder (I3).
    again = await sidecar.collect(11)
    assert offsets(again) == [5, 8, 9, 10, 11, 13, 14, 16, 17, 18, 19]
    assert {each.attempt for each in again} == {1}
    assert await sidecar.settle([held], SettleVerb.ACK) == ["acked"]
    assert await sidecar.settle(done[:1], SettleVerb.ACK) == ["already_acked"]
    assert await sidecar.receive(wait_ms=300) == []
    await sidecar.settle(again, SettleVerb.ACK)
    await sidecar.until_watermark(20)
    # As it was before: 10 is where it stood, with 12 and 13 done above it.
    await seek(sidecar.runtime, UNDO)
    again = await sidecar.collect(8)
    assert offsets(again) == [10, 11, 14, 15, 16, 17, 18, 19]
    await seek(sidecar.runtime, LATEST)
    await sidecar.until_watermark(20)
    assert await sidecar.settle(again, SettleVerb.EXTEND) == ["lost"] * 8
    await sidecar.publish(1)
    (new,) = await sidecar.collect(1)
    assert offsets([new]) == [20]


@EVERY_BROKER
async def test_to_a_time(place: Place) -> None:
    sidecar = await place.start(stuck_after_ms=SLOW_MS)
    await sidecar.publish(5)
    await sidecar.settle(await sidecar.collect(5), SettleVerb.ACK)
    await asyncio.sleep(0.05)  # the broker's stamps have milliseconds
    await sidecar.publish(3)
    messages = await sidecar.collect(3)
    await sidecar.settle(messages, SettleVerb.ACK)
    await sidecar.until_watermark(8)
    time_ms = messages[0].record.timestamp_ms
    await seek(sidecar.runtime, SeekRequest(SeekTo.TIME, time_ms))
    assert offsets(await sidecar.collect(3)) == [5, 6, 7]


async def test_r8_copies_of_what_comes_again_are_over(place: Place) -> None:
    sidecar = await place.start()
    await sidecar.publish(6)
    messages = await sidecar.collect(6, lease_ms=60_000)
    await sidecar.settle(messages[5:], SettleVerb.ACK)
    # 0: waits as a copy. 1: its copy is under lease. 2: its copy has gone its way. 3: is forwarded
    # with a live lease. 4: the same, and it lies below the position.
    await sidecar.settle(messages[:3], SettleVerb.RETRY, delay_ms=3_000)
    await sidecar.until_watermark(6)
    copies = {offsets([m])[0]: m for m in await sidecar.collect(3, wait_ms=30_000)}
    assert sorted(copies) == [0, 1, 2]
    assert await sidecar.settle([copies[2]], SettleVerb.ACK) == ["acked"]
    assert await sidecar.settle([copies[1]], SettleVerb.EXTEND, lease_ms=60_000) == ["extended"]
    assert await sidecar.settle([copies[0]], SettleVerb.RETRY, delay_ms=1_000) == ["retrying"]
    await seek(sidecar.runtime, EARLIEST)
    again = await sidecar.collect(3)
    assert offsets(again) == [0, 2, 5]
    assert {each.attempt for each in again} == {1}
    await sidecar.settle(again, SettleVerb.ACK)
    # Nothing comes of the copy of 0 when it would have been due, and each lease is as good as ever.
    assert await sidecar.receive(wait_ms=2_000) == []
    held = [copies[1], *messages[3:5]]
    assert await sidecar.settle(held, SettleVerb.ACK) == ["acked"] * 3
    await sidecar.until_watermark(6)
    assert await sidecar.receive(wait_ms=500) == []
    rows = await sidecar.runtime.lag(NAME)
    assert all(row.leased == row.retrying == row.ready == 0 for row in rows)


async def test_two_sidecars_one_of_which_owns_it(place: Place) -> None:
    one = await place.start(stuck_after_ms=SLOW_MS)
    two = await place.start("two", stuck_after_ms=SLOW_MS)
    await one.publish(10)
    owner, other = one, two
    found: list[Delivery] = []
    while not found:
        if found := await one.receive(wait_ms=1_000):
            break
        if found := await two.receive(wait_ms=1_000):
            owner, other = two, one
    found += await owner.collect(10 - len(found)) if len(found) < 10 else []
    await owner.settle(found, SettleVerb.ACK)
    # The one that does not own it is asked.
    await seek(other.runtime, EARLIEST)
    again: list[Delivery] = []
    while len(again) < 10:
        some = await asyncio.gather(one.receive(wait_ms=500), two.receive(wait_ms=500))
        again += [*some[0], *some[1]]
    assert offsets(again) == list(range(10))
    assert set(await other.settle(again, SettleVerb.ACK)) == {"acked"}


@ONE_BROKER
async def test_one_at_a_time_and_cancelled_before_it_moves(place: Place) -> None:
    sidecar = await place.start(stuck_after_ms=SLOW_MS)
    await sidecar.publish(3)
    await sidecar.settle(await sidecar.collect(3), SettleVerb.ACK)
    await sidecar.until_watermark(3)
    await pause(sidecar.runtime)
    wrong = SeekRequest(SeekTo.POSITIONS, positions=(Position("other", 0, 1),))
    with pytest.raises(BadParameterError):
        await sidecar.runtime.progress.seek(NAME, wrong)
    began = await sidecar.runtime.progress.seek(NAME, EARLIEST)
    with pytest.raises(OperationRunningError):
        await sidecar.runtime.progress.seek(NAME, LATEST)
    assert isinstance(began, OperationView)
    await sidecar.runtime.dead.cancel(began.id)
    view = await ended(sidecar.runtime, began)
    assert (view.state, view.moved) == ("cancelled", 0)
    await resume(sidecar.runtime)
    assert await sidecar.receive(wait_ms=1_000) == []
    await sidecar.until_watermark(3)
    assert await sidecar.watermark() == 3


@EVERY_BROKER
async def test_progress_goes_out_and_in_and_only_increases(place: Place) -> None:
    sidecar = await place.start(stuck_after_ms=SLOW_MS)
    await sidecar.publish(12)
    messages = await sidecar.collect(12, lease_ms=60_000)
    await sidecar.settle([messages[n] for n in (0, 1, 2, 5, 6, 9)], SettleVerb.ACK)
    await sidecar.until_watermark(3)
    export = await sidecar.runtime.progress.export(NAME)
    (found,) = export.partitions
    assert (found.offset, found.finished, found.partition) == (3, [(5, 7), (9, 10)], 0)
    # Taken over by a group that is further in one way and behind in another.
    await sidecar.settle([messages[n] for n in (3, 4, 7)], SettleVerb.ACK)
    await sidecar.settle([messages[n] for n in (8, 10)], SettleVerb.RELEASE)
    await sidecar.until_watermark(8)
    positions = (Position(found.topic, 0, 3, tuple(found.finished), found.topic_id),)
    increase = SeekRequest(SeekTo.POSITIONS, None, positions, increase_only=True, imported=True)
    assert (await plan(sidecar, increase))[:3] == (8, 8, 0)
    view = await seek(sidecar.runtime, increase)
    assert view.kind == "import"
    await sidecar.until_watermark(0)
    assert await sidecar.watermark() == 8
    ahead = at(sidecar, 10)
    await seek(sidecar.runtime, SeekRequest(SeekTo.POSITIONS, None, ahead, increase_only=True))
    # 11 is under lease and stays; 9 was done, 8 is passed over.
    (ten,) = await sidecar.collect(1)
    assert offsets([ten]) == [10]
    assert await sidecar.settle([ten, messages[11]], SettleVerb.ACK) == ["acked", "acked"]
    await sidecar.until_watermark(12)
    # To overwrite is to go back, too.
    await seek(sidecar.runtime, SeekRequest(SeekTo.POSITIONS, None, positions, imported=True))
    assert offsets(await sidecar.collect(6)) == [3, 4, 7, 8, 10, 11]
    other = (Position(found.topic, 0, 3, (), "00" * 16),)
    with pytest.raises(BadParameterError):
        await plan(sidecar, SeekRequest(SeekTo.POSITIONS, None, other))
