"""Who may send what is in an outbox, and for how long; who loses the lease forgets all (I1)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ackd.config.schema import BrokerSettings
from ackd.core.outbox import Bounds, EnqueueRequest, NewMessage, ResultRetention, SendResult
from ackd.engine.publishing.outbox_lease import LEASE_MS, OutboxLease
from ackd.engine.publishing.outbox_name import OutboxName
from ackd.engine.publishing.outbox_queue import OutboxQueue
from ackd.ports import Outgoing
from tests.unit.engine.clock import TestClock
from tests.unit.engine.scripted import ScriptedBroker
from tests.unit.engine.world import World

BOUNDS = Bounds(100, 1_000_000, 60_000)
KEEP = ResultRetention(60_000, 100, 60_000)


class Holder:
    """One sidecar's lease, and what it has taken."""

    def __init__(self, world: World, outbox_name: OutboxName, name: str) -> None:
        self.queue = OutboxQueue()
        self.lease = OutboxLease(
            "main", name, outbox_name, world.store, world.clock, KEEP, self.queue
        )

    async def take(self, room: int = 10, *, resync: bool = False) -> list[int]:
        taken = await self.lease.take(room, resync=resync)
        for each in taken:
            self.queue.add(each, Outgoing("orders", None, b"v"))
        return [each.number for each in taken]


@pytest.fixture
async def outbox_name(world: World) -> OutboxName:
    """An outbox with three messages that are due."""
    up = asyncio.Event()
    up.set()
    outbox_name = OutboxName("main", BrokerSettings(adapter="scripted"), world.store, up)
    await outbox_name.find(ScriptedBroker())
    await accept(world, outbox_name, 0, 0, 0)
    return outbox_name


async def accept(world: World, outbox_name: OutboxName, *delays_ms: int) -> None:
    """More messages, due after so long."""
    messages = tuple(NewMessage(delay_ms, b"body") for delay_ms in delays_ms)
    await world.store.outboxes.enqueue(outbox_name.name, [EnqueueRequest(b"", messages)], BOUNDS)


async def test_i8_the_first_to_ask_has_it_and_takes_what_fits(
    world: World, outbox_name: OutboxName
) -> None:
    one, two = Holder(world, outbox_name, "one"), Holder(world, outbox_name, "two")
    assert not one.lease.valid
    assert await one.take(2) == [1, 2]
    assert await two.take() == []
    assert (one.lease.valid, two.lease.valid) == (True, False)
    assert two.lease.last.holder == "one"
    assert await one.take() == [3]


async def test_i1_it_ends_unless_a_call_extends_it(world: World, outbox_name: OutboxName) -> None:
    one = Holder(world, outbox_name, "one")
    await one.take()
    world.clock.pass_ms(LEASE_MS - 1)
    assert one.lease.valid
    one.queue.finish(SendResult(1, b"stored"))
    await one.lease.confirm()
    assert not one.queue.results
    world.clock.pass_ms(LEASE_MS - 1)
    assert one.lease.valid
    world.clock.pass_ms(1)
    assert not one.lease.valid


async def test_who_loses_it_forgets_what_it_took(
    world: World, outbox_name: OutboxName, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Holder(world, outbox_name, "one"), Holder(world, outbox_name, "two")
    await one.take()
    one.queue.finish(SendResult(1, b"stored"))
    world.clock.pass_ms(LEASE_MS)
    assert await two.take() == [1, 2, 3]
    with caplog.at_level(logging.WARNING, "ackd.engine"):
        await one.lease.confirm()
    assert "may come twice" in caplog.text
    assert (one.lease.term, one.queue.numbers()) == (0, [])


async def test_what_was_taken_before_another_held_it_is_taken_again(
    world: World, outbox_name: OutboxName
) -> None:
    one, two = Holder(world, outbox_name, "one"), Holder(world, outbox_name, "two")
    await one.take()
    world.clock.pass_ms(LEASE_MS)
    await two.take()
    await two.lease.release()
    assert await one.take() == [1, 2, 3]
    assert len(one.queue) == 3


async def test_i1_given_back_are_those_that_were_not_sent(
    world: World, outbox_name: OutboxName
) -> None:
    one, two = Holder(world, outbox_name, "one"), Holder(world, outbox_name, "two")
    await one.take()
    one.queue.choose(0)[2].fly()
    await one.lease.release()
    assert (one.lease.valid, len(one.queue)) == (False, 0)
    taken = await two.lease.take(10, resync=False)
    assert {each.number: each.in_doubt for each in taken} == {1: False, 2: True, 3: False}


async def test_r12_a_lost_answer_takes_nothing_away(world: World, outbox_name: OutboxName) -> None:
    one = Holder(world, outbox_name, "one")
    await one.lease.take(10, resync=False)  # nobody read the answer
    assert await one.take() == []
    assert await one.take(resync=True) == [1, 2, 3]
    assert await one.take(resync=True) == []


async def test_messages_are_due_by_the_clock_of_the_store(
    world: World, outbox_name: OutboxName
) -> None:
    clock = TestClock()
    clock.pass_ms(7_000_000)
    lease = OutboxLease("main", "one", outbox_name, world.store, clock, KEEP, OutboxQueue())
    await accept(world, outbox_name, 60_000)
    await lease.take(10, resync=False)
    assert lease.last.next_due_ms - lease.store_now_ms() == 60_000
    clock.pass_ms(100)
    assert lease.last.next_due_ms - lease.store_now_ms() == 59_900
    lease.one_more_due()
    assert lease.last.due == 1
