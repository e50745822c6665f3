"""Receives wait in their order, and each is answered once."""

import asyncio

import pytest

from ackd.api.messages import Delivery, ReceiveRequest
from ackd.engine.delivery.waiters import ENDED_MIN, WAITERS_MAX, Waiter, WaiterQueue
from tests.unit.engine.delivery.room import Room
from tests.unit.engine.world import record


def waiter(wait_ms: int = 1_000) -> Waiter:
    """A receive that begins now."""
    loop = asyncio.get_running_loop()
    return Waiter(ReceiveRequest(wait_ms=wait_ms), loop.create_future(), loop.time())


def delivery(size: int) -> Delivery:
    return Delivery("v1.x", "orders", 0, record(1, size=size), 1, 17, 0, 0)


async def test_first_come_first_served() -> None:
    queue, one, two = WaiterQueue(), waiter(), waiter()
    queue.join(one)
    queue.join(two)
    assert queue.first() is one
    queue.served(one)
    assert queue.first() is two
    queue.return_first(one)  # its grants gave nothing: it keeps its turn
    assert queue.first() is one


async def test_who_has_gone_or_has_an_answer_is_passed_over() -> None:
    queue, gone, answered, waits = WaiterQueue(), waiter(), waiter(), waiter()
    for each in (gone, answered, waits):
        queue.join(each)
    gone.gone = True
    answered.answer()
    assert (queue.waiting(), len(queue)) == (1, 3)
    assert queue.first() is waits
    assert len(queue) == 1
    waits.gone = True
    assert queue.first() is None


async def test_i8_those_that_ended_do_not_pile_up_behind_one_that_waits() -> None:
    queue, waits = WaiterQueue(), waiter()
    queue.join(waits)
    for _ in range(10 * ENDED_MIN):
        ended = waiter()
        queue.join(ended)
        ended.answer()
        queue.ended()
        assert len(queue) <= ENDED_MIN
    assert queue.first() is waits


async def test_i8_the_queue_has_a_bound() -> None:
    queue, one = WaiterQueue(), waiter()
    for _ in range(WAITERS_MAX - 1):
        queue.join(one)
    assert not queue.full
    queue.join(one)
    assert queue.full


async def test_whose_time_is_up_is_answered_unless_grants_are_under_way() -> None:
    queue, short, granting, long = WaiterQueue(), waiter(50), waiter(50), waiter(51)
    for each in (short, granting, long):
        queue.join(each)
    granting.grants = 1
    queue.answer_impatient(short.start_s + 0.05)
    assert [each.future.done() for each in (short, granting, long)] == [True, False, False]
    queue.answer_impatient(long.end_s)
    assert [each.future.done() for each in (short, granting, long)] == [True, False, True]


async def test_at_the_end_all_are_answered_but_who_waits_for_the_store() -> None:
    queue, idle, granting = WaiterQueue(), waiter(), waiter()
    queue.join(idle)
    queue.join(granting)
    granting.grants = 1
    queue.end_all()
    assert (len(queue), idle.future.done(), granting.future.done()) == (0, True, False)


async def test_a_second_answer_changes_nothing() -> None:
    one = waiter()
    one.deliveries = [delivery(10)]
    one.timer = asyncio.get_running_loop().call_later(1, one.answer)
    one.answer()
    assert one.timer.cancelled()
    one.fail(RuntimeError("too late"))
    assert await one.future == one.deliveries


async def test_an_error_is_the_answer_and_no_timer_follows() -> None:
    one = waiter()
    one.timer = asyncio.get_running_loop().call_later(1, one.answer)
    one.fail(RuntimeError("no store"))
    one.answer()
    assert one.timer.cancelled()
    with pytest.raises(RuntimeError, match="no store"):
        await one.future


async def test_the_size_is_what_was_granted_not_what_was_asked_for() -> None:
    one = waiter()
    one.asked, one.asked_bytes = 2, 30
    one.deliveries = [delivery(10), delivery(20)]
    assert one.size() == 30
    del one.deliveries[0]
    assert one.size() == 20


async def test_i8_those_of_a_link_without_room_stand_aside() -> None:
    queue, room = WaiterQueue(), Room()
    relayed = [waiter() for _ in range(3)]
    own = waiter()
    for each in relayed:
        each.relay = room
        queue.join(each)
    queue.join(own)
    room.bytes = 0
    assert (queue.first(), queue.first_relayed(), len(queue)) == (own, None, 1)
    assert (queue.waiting(), queue.first_here()) == (4, own)
    relayed[0].gone = True
    assert not queue.has_room(object())
    assert queue.has_room(room)
    assert not queue.has_room(room)
    room.bytes = 1
    assert queue.first() is relayed[1]
    queue.served(relayed[1])
    queue.return_first(relayed[1])
    assert (queue.all(), room.refusals) == ([*relayed[1:], own], 1)
    room.bytes = 0
    assert queue.first() is own
    queue.end_all()
    assert all(each.future.done() for each in (*relayed[1:], own))


async def test_those_of_other_sidecars_can_be_served_first() -> None:
    queue, own, gone, relayed = WaiterQueue(), waiter(), waiter(), waiter()
    for each in (own, gone, relayed):
        queue.join(each)
    assert queue.first_relayed() is None
    room = Room()
    gone.relay = relayed.relay = room
    gone.gone = True
    assert queue.first_relayed() is relayed
    queue.served(relayed)
    assert queue.all() == [own, gone]


async def test_whose_time_is_up_waits_for_another_sidecar_that_was_asked() -> None:
    queue, asked = WaiterQueue(), waiter(0)
    queue.join(asked)
    asked.elsewhere = 1
    queue.answer_impatient(asked.start_s)
    assert not asked.future.done()


async def test_i8_those_that_stood_aside_are_forgotten_when_they_end_or_their_link_closes() -> None:
    queue, room, other = WaiterQueue(), Room(), Room()
    room.bytes = other.bytes = 0
    first = waiter()
    first.relay = room
    queue.join(first)
    assert queue.first() is None
    for _ in range(10 * ENDED_MIN):
        gone = waiter()
        gone.relay = room
        queue.join(gone)
        assert queue.first() is None
        gone.leave()
        queue.ended()
        assert len(queue.all()) <= ENDED_MIN
    assert first in queue.all()
    last = waiter()
    last.relay = other
    queue.join(last)
    assert queue.first() is None
    queue.forget(room)
    assert queue.all() == [last]
    queue.answer_impatient(last.end_s)
    assert last.future.done()
    for _ in range(ENDED_MIN):
        queue.ended()
    assert queue.all() == []
