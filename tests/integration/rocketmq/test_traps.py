"""What RocketMQ does with holds and handles; the adapter's rules stand on these facts.

All stories are told at once, because each waits for seconds until the broker gives something back.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import pytest

from ackd.errors import BrokerError
from ackd_adapters.rocketmq.client import HeldMessage, code_of
from ackd_adapters.rocketmq.message import Taken
from tests.support.rocketmq import RocketMQ
from tests.support.rocketmq.bare import HOLD_MS, bare, held, never, some
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(180)]

BACK_S = 9.0
"""A hold that ended brings its message back within this, on a busy machine too."""
LONG_MS = 60_000
"""A hold that does not end by itself here."""
AWAY_S = 6.0
"""What has not come back after this stays away."""

Story = Callable[[RocketMQ], Awaitable[list[object]]]


async def older_handle(broker: RocketMQ) -> list[object]:
    """Ack with the handle from before a change."""
    async with bare(broker) as it:
        await it.send(b"x")
        (message,) = await it.take_some(1, LONG_MS)
        await it.client.change(it.topic, held(message), HOLD_MS)
        said = await it.ack(message)
        return [said, len(await it.within(BACK_S, some))]


async def newest_handle(broker: RocketMQ) -> list[object]:
    """Ack with the handle that the change gave."""
    async with bare(broker) as it:
        while True:
            await it.send(b"x")
            (message,) = await it.take_some(1, LONG_MS)
            began = time.monotonic()
            handle = await it.client.change(it.topic, held(message), HOLD_MS)
            newest = HeldMessage(message.message_id, handle)
            said = [await it.client.ack(it.topic, [newest]) for _ in range(2)]
            if time.monotonic() - began < HOLD_MS / 1000:  # else its hold had ended
                break
        found = await it.within(AWAY_S, never)
        return [*said, message.message_id in {each.message_id for each in found}]


async def change_after_ack(broker: RocketMQ) -> list[object]:
    """Extend what is acked."""
    async with bare(broker) as it:
        await it.send(b"x")
        (message,) = await it.take_some(1, LONG_MS)
        said = await it.ack(message)
        await it.client.change(it.topic, held(message), HOLD_MS)
        return [said, len(await it.within(BACK_S, some))]


async def fork(broker: RocketMQ) -> list[object]:
    """Two changes by one handle."""
    async with bare(broker) as it:
        await it.send(b"x")
        (message,) = await it.take_some(1, LONG_MS)
        for _ in range(2):
            await it.client.change(it.topic, held(message), HOLD_MS)
        found = await it.within(BACK_S, lambda them: len(them) >= 2)
        return [len(found), {each.message_id for each in found} == {message.message_id}]


async def expired(broker: RocketMQ) -> list[object]:
    """Ack and change after the hold; and a handle that never was."""
    async with bare(broker) as it:
        await it.send(b"x")
        (message,) = await it.take_some(1, 1_000)
        await asyncio.sleep(1.5)
        said = await it.ack(message)
        with pytest.raises(BrokerError) as refused:
            await it.client.change(it.topic, held(message), HOLD_MS)
        with pytest.raises(BrokerError) as bogus:
            await it.client.change(it.topic, HeldMessage(message.message_id, "no handle"), HOLD_MS)
        return [said, code_of(refused.value), code_of(bogus.value)]


async def copies(broker: RocketMQ) -> list[object]:
    """Where a message lies when it comes again."""
    async with bare(broker, queues=4) as it:
        for number in range(4):
            await it.send(b"%d" % number)
        first = await it.take_some(4, LONG_MS)
        for each in first:
            await it.client.change(it.topic, held(each), 1_000)
        second = await it.within(BACK_S, lambda them: len(them) >= 4)
        return [_places(first), _places(second), [each.attempt for each in second]]


def _places(them: list[Taken]) -> dict[str, tuple[int, int]]:
    return {each.message_id: (each.queue, each.offset) for each in them}


async def most(broker: RocketMQ) -> list[object]:
    """Ask for more than there may be, and for a hold that is too short."""
    async with bare(broker) as it:
        await asyncio.gather(*(it.send(b"%d" % number) for number in range(40)))
        found = await it.client.receive(it.queue, most=1000, hold_ms=60_000, poll_ms=1_000)
        with pytest.raises(BrokerError) as short:
            await it.take(hold_ms=10)
        return [len(found) <= 32, code_of(short.value)]


async def fifo_lock(broker: RocketMQ) -> list[object]:
    """One held message of a FIFO queue stops all groups of messages in it."""
    async with bare(broker, kind="FIFO") as it:
        await it.send(b"a0", group="a")
        await it.send(b"b0", group="b")

        async def first() -> list[Taken]:
            return await it.take(1, 20_000, attempt_id="one")

        (message,) = await wait_until_async(first, "the first one")
        other = await it.take(1, 20_000, attempt_id="two")
        same = await it.take(1, 20_000, attempt_id="one")
        await it.ack(*same)
        after = await it.take_some(1)
        return [message.body, other, [each.body for each in same], after[0].body]


async def fifo_middle(broker: RocketMQ) -> list[object]:
    """Ack the middle one of three."""
    async with bare(broker, kind="FIFO") as it:
        for number in range(3):
            await it.send(b"%d" % number, group="a")

        async def whole() -> list[Taken]:
            # A message that was stored can be had a moment later; what came before it comes again.
            found = await it.take(3)
            return found if len(found) == 3 else []

        while True:
            three = await wait_until_async(whole, "three at once", timeout_s=40)
            said = await it.ack(three[1])
            if said == ["OK"]:  # else their hold had ended
                break
        found = await it.within(BACK_S, lambda them: len(them) >= 3)
        return [len(three), said, [each.body for each in found]]


async def dead(broker: RocketMQ) -> list[object]:
    """Give one up by call; it is over for the group."""
    async with bare(broker) as it:
        while True:
            await it.send(b"x")
            (message,) = await it.take_some(1, LONG_MS)
            began = time.monotonic()
            handle = await it.client.change(it.topic, held(message), HOLD_MS)
            with contextlib.suppress(BrokerError):
                newest = HeldMessage(message.message_id, handle)
                await it.client.give_up(it.topic, newest, 1, 1)
            if time.monotonic() - began < HOLD_MS / 1000:  # else its hold had ended
                break
        found = await it.within(AWAY_S, never)
        return [message.message_id in {each.message_id for each in found}]


STORIES: dict[str, Story] = {
    each.__name__: each
    for each in (
        older_handle,
        newest_handle,
        change_after_ack,
        fork,
        expired,
        copies,
        most,
        fifo_lock,
        fifo_middle,
        dead,
    )
}


@pytest.fixture(scope="module")
def told(rocketmq: RocketMQ) -> dict[str, list[object] | BaseException]:
    """What each story saw."""

    async def tell() -> list[list[object] | BaseException]:
        return await asyncio.gather(
            *(each(rocketmq) for each in STORIES.values()), return_exceptions=True
        )

    return dict(zip(STORIES, asyncio.run(tell()), strict=True))


Told = dict[str, list[object]]


def test_an_ack_by_an_older_handle_says_ok_and_is_worth_nothing(told: Told) -> None:
    assert told["older_handle"] == [["OK"], 1]


def test_the_newest_handle_ends_it_and_may_be_repeated(told: Told) -> None:
    assert told["newest_handle"] == [["OK"], ["OK"], False]


def test_a_change_after_the_ack_revives_the_message(told: Told) -> None:
    assert told["change_after_ack"] == [["OK"], 1]


def test_r32_two_changes_by_one_handle_fork_the_message(told: Told) -> None:
    assert told["fork"] == [2, True]


def test_a_handle_ends_with_its_hold(told: Told) -> None:
    invalid = "INVALID_RECEIPT_HANDLE"
    assert told["expired"] == [[invalid], invalid, "INTERNAL_SERVER_ERROR"]


def test_a_copy_for_a_retry_lies_elsewhere_under_the_same_id(told: Told) -> None:
    first, second, attempts = told["copies"]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first.keys() == second.keys()
    assert len(set(first.values())) == 4
    assert first != second
    assert attempts == [2] * 4


def test_bounds_of_one_receive(told: Told) -> None:
    assert told["most"] == [True, "ILLEGAL_INVISIBLE_TIME"]


def test_i6_one_held_message_locks_a_fifo_queue_and_an_attempt_id_finds_it_again(
    told: Told,
) -> None:
    assert told["fifo_lock"] == [b"a0", [], [b"a0"], b"b0"]


def test_in_fifo_an_acked_one_in_the_middle_comes_back_with_the_others(told: Told) -> None:
    assert told["fifo_middle"] == [3, ["OK"], [b"0", b"1", b"2"]]


def test_one_given_up_by_call_is_over_for_the_group(told: Told) -> None:
    assert told["dead"] == [False]
