"""The holds of messages against a broker whose answers come late, are lost, or are refusals.

The scripted broker keeps the rules of the real one (`tests/integration/rocketmq/test_traps.py`):
only the newest handle of a message counts, two changes by one handle fork it, a change after the
ack revives it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd.ports import AssignedPlace
from ackd_adapters.rocketmq.client import GroupClient, HeldMessage
from ackd_adapters.rocketmq.holds import Holds, monotonic_ms
from ackd_adapters.rocketmq.message import Taken
from ackd_adapters.rocketmq.rpc import NO_ANSWER
from tests.support.wait import wait_until_async

TOPIC = "orders"
PLACE = AssignedPlace(0, 7)
PART = TopicPartition(TOPIC, 0)
HOLD_MS = 200


class ScriptedBroker:
    """Answers a call when the test lets it, or loses the answer. `wrong`: what ackd may not do."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.wrong: list[str] = []
        self.acked = False
        self.gates: dict[str, asyncio.Event] = {}
        self.lost: set[str] = set()
        self.refused: set[str] = set()
        self._used: set[str] = set()
        self._pending: set[str] = set()
        self._number = 0

    def gate(self, kind: str) -> asyncio.Event:
        """Calls of this kind wait for the event."""
        return self.gates.setdefault(kind, asyncio.Event())

    def of(self, kind: str) -> list[tuple[str, str, int]]:
        """The calls of a kind so far."""
        return [each for each in self.calls if each[0] == kind]

    async def ack(self, _: str, held: Sequence[HeldMessage]) -> list[str]:
        """Settle for good; only the newest handle counts."""
        for each in held:
            self._begin("ack", each.handle, 0)
        await self._answer("ack", [each.handle for each in held])
        self.acked = True
        return ["OK"] * len(held)

    async def change(self, _: str, held: HeldMessage, hold_ms: int) -> str:
        """Another handle from here on."""
        self._begin("change", held.handle, hold_ms)
        if self.acked:
            self.wrong.append("a change after the ack revives the message")
        if held.handle in self._used:
            self.wrong.append("two changes by one handle fork the message")
        self._used.add(held.handle)
        self._number += 1
        made = f"handle-{self._number}"
        await self._answer("change", [held.handle])
        return made

    def _begin(self, kind: str, handle: str, hold_ms: int) -> None:
        if handle in self._pending:
            self.wrong.append("two calls about one handle at a time")
        if kind == "ack" and handle in self._used:
            self.wrong.append("an ack by an older handle says OK and is worth nothing")
        self._pending.add(handle)
        self.calls.append((kind, handle, hold_ms))

    async def _answer(self, kind: str, handles: Sequence[str]) -> None:
        try:
            if kind in self.gates:
                await self.gates[kind].wait()
        finally:
            self._pending.difference_update(handles)
        if kind in self.lost:
            raise BrokerError("no answer", code=NO_ANSWER)
        if kind in self.refused:
            raise BrokerError("receipt handle is expired", code="INVALID_RECEIPT_HANDLE")


@asynccontextmanager
async def holding(broker: ScriptedBroker) -> AsyncIterator[Holds]:
    """One message with a place is held; what was done wrong fails the test."""
    holds = Holds(cast("GroupClient", broker), HOLD_MS)
    running = asyncio.get_running_loop().create_task(holds.run())
    try:
        holds.taken([taken("first")], monotonic_ms())
        holds.placed(TOPIC, "message", PLACE)
        yield holds
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert not broker.wrong


def taken(handle: str) -> Taken:
    """The message as the broker delivers it under a handle."""
    return Taken("message", TOPIC, 0, 7, handle, 1, b"")


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for it."""

    async def met() -> bool:
        return bool(condition())

    await wait_until_async(met, what, timeout_s=60)


async def test_a_finish_while_a_change_is_pending_acks_by_the_new_handle() -> None:
    """The ack waits for the change, whose answer has the only handle that counts."""
    broker = ScriptedBroker()
    gate = broker.gate("change")
    async with holding(broker) as holds:
        await until(lambda: broker.of("change"), "a renewal begins")
        holds.finished(PART, [7])
        for _ in range(20):
            await asyncio.sleep(0)
        assert not broker.of("ack")
        gate.set()
        await until(lambda: not len(holds), "all is told")
    assert broker.of("ack") == [("ack", "handle-1", 0)]
    assert len(broker.of("change")) == 1


@pytest.mark.parametrize("how", ["lost", "refused"])
async def test_after_a_change_without_an_answer_its_handle_is_never_used(how: str) -> None:
    """Lost, or refused because the time is up. The message comes again under another handle, and
    that one is acked.
    """
    broker = ScriptedBroker()
    getattr(broker, how).add("change")
    async with holding(broker) as holds:
        await until(lambda: len(broker.of("change")) == 1, "a renewal")
        getattr(broker, how).clear()
        await asyncio.sleep(0)
        holds.finished(PART, [7])
        for _ in range(20):
            await asyncio.sleep(0)
        assert not broker.of("ack"), "it would say OK and mean nothing"
        # Finished, and everything about it is worthless: it is forgotten, as the record knows it.
        await until(lambda: not len(holds), "it is forgotten")
        holds.taken([taken("again")], monotonic_ms())
        holds.placed(TOPIC, "message", PLACE)
        holds.finished(PART, [7])
        await until(lambda: not len(holds), "the one that came again is told")
    assert broker.of("ack") == [("ack", "again", 0)]


async def test_a_delivery_that_comes_while_its_message_is_being_acked_is_acked_too() -> None:
    """A crash of the broker delivers twice; the second handle comes during the ack of the first."""
    broker = ScriptedBroker()
    gate = broker.gate("ack")
    async with holding(broker) as holds:
        holds.finished(PART, [7])
        await until(lambda: broker.of("ack"), "the first ack")
        holds.taken([taken("second")], monotonic_ms())
        gate.set()
        await until(lambda: not len(holds), "both are told")
    assert [handle for _, handle, _ in broker.of("ack")] == ["first", "second"]


async def test_a_lost_ack_is_repeated_with_the_same_handle_and_nothing_else_is_called() -> None:
    broker = ScriptedBroker()
    broker.lost.add("ack")
    async with holding(broker) as holds:
        holds.finished(PART, [7])
        await until(lambda: len(broker.of("ack")) == 2, "a repeat")
        assert len(holds) == 1
        broker.lost.clear()
        await until(lambda: not len(holds), "it is told")
    assert {handle for _, handle, _ in broker.of("ack")} == {"first"}
    assert not broker.of("change")


async def test_after_a_takeover_a_late_answer_is_given_back_once() -> None:
    """The partition went while a renewal was pending: its answer comes late, and only then the
    message is given back, once, by the handle of that answer.
    """
    broker = ScriptedBroker()
    gate = broker.gate("change")
    async with holding(broker) as holds:
        await until(lambda: broker.of("change"), "a renewal begins")
        holds.release(PART)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(broker.of("change")) == 1
        gate.set()
        await until(lambda: not len(holds), "it is forgotten")
        assert broker.of("change")[1:] == [("change", "handle-1", 1_000)]
        assert holds.kept(TOPIC) == []
        # It comes again, to this sidecar as it happens: nothing of before sticks to it.
        holds.taken([taken("again")], monotonic_ms())
        holds.placed(TOPIC, "message", PLACE)
        assert holds.kept(TOPIC) == [(b"message", PLACE)]
        holds.finished(PART, [7])
        await until(lambda: not len(holds), "it is told")
    assert broker.of("ack") == [("ack", "again", 0)]


async def test_a_delivery_during_the_return_of_the_last_one_is_not_given_back_with_it() -> None:
    broker = ScriptedBroker()
    gate = broker.gate("change")
    async with holding(broker) as holds:
        holds.unwanted(TOPIC, "message")
        await until(lambda: broker.of("change"), "it is given back")
        holds.taken([taken("second")], monotonic_ms())
        holds.placed(TOPIC, "message", PLACE)
        gate.set()
        await until(lambda: len(broker.of("change")) >= 2, "the second one is renewed")
        holds.finished(PART, [7])
        await until(lambda: not len(holds), "it is told")
    assert broker.of("change")[0] == ("change", "first", 1_000)
    assert broker.of("change")[1] == ("change", "second", HOLD_MS)
