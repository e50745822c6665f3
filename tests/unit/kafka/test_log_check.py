"""Whether a log still has what was read of it: the leader's epoch and the log's end tell (R1)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_adapters.kafka.config import Properties
from ackd_adapters.kafka.log_check import Answers, LogCheck, Tail

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
READ = Tail(100, 7)


class Check:
    """A `LogCheck` whose second question can't be asked. `asked`: how often it was tried."""

    def __init__(self, ends: dict[TopicPartition, Tail | BrokerError]) -> None:
        self.asked = 0
        self._ends = ends
        self._check = LogCheck("work", self._properties, self._ask_ends)

    def _properties(self) -> Properties:
        self.asked += 1
        raise BrokerError("no broker")

    def _ask_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Future[Tail]]:
        found: dict[TopicPartition, Future[Tail]] = {}
        for each in partitions:
            answer = self._ends[each]
            found[each] = Future()
            if isinstance(answer, Tail):
                found[each].set_result(answer)
            else:
                found[each].set_exception(answer)
        return found

    async def round(self, *partitions: TopicPartition) -> Answers:
        answered: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def relay(found: Answers) -> None:
            loop.call_soon_threadsafe(answered.set_result, found)

        self._check.ask(dict.fromkeys(partitions, READ), relay)
        async with asyncio.timeout(60):
            found = await answered
        self._check.close()
        return found


@pytest.mark.parametrize("end", [100, 101])
async def test_r1_a_log_that_is_led_as_before_and_as_long_has_it_all(end: int) -> None:
    check = Check({TP: Tail(end, 7)})
    assert (await check.round(TP), check.asked) == ({TP: ""}, 0)


@pytest.mark.parametrize("now", [Tail(99, 7), Tail(500, 8), Tail(500, -1), BrokerError("away")])
async def test_r1_any_other_log_is_looked_at(now: Tail | BrokerError) -> None:
    """A shorter one, one that somebody else leads or has led meanwhile, and one that nobody knows
    of.
    """
    check = Check({TP: now})
    assert (await check.round(TP), check.asked) == ({}, 1)


async def test_r1_it_is_looked_at_in_a_round_of_its_own() -> None:
    """Those whose answer is known need not wait for it."""
    check = Check({TP: Tail(100, 7), OTHER: Tail(500, 8)})
    assert (await check.round(TP, OTHER), check.asked) == ({TP: ""}, 0)
