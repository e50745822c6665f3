"""Which of the taken messages may go now: one of each lane, in order, and not too many (I6, I8)."""

from __future__ import annotations

import pytest

from ackd.core.backoff import Backoff
from ackd.core.outbox import SendResult, TakenMessage
from ackd.engine.publishing.outbox_queue import (
    BATCH_MAX,
    HELD_BYTES_MAX,
    HELD_MAX,
    OutboxQueue,
)
from ackd.ports import Outgoing

AGAIN = Backoff.constant(200)


def queue_of(*messages: Outgoing, size: int = 10) -> OutboxQueue:
    """Messages 1, 2 and so on."""
    queue = OutboxQueue()
    for number, message in enumerate(messages, 1):
        queue.add(TakenMessage(number, 0, in_doubt=False, body=bytes(size)), message)
    return queue


def sent(topic: str = "orders", key: bytes | None = None, partition: int | None = None) -> Outgoing:
    return Outgoing(topic, key, b"v", partition=partition)


def test_messages_without_a_lane_go_together() -> None:
    queue = queue_of(*[sent()] * (BATCH_MAX + 1))
    assert list(queue.choose(0)) == list(range(1, BATCH_MAX + 1))


def test_i6_only_the_first_of_a_lane_goes() -> None:
    queue = queue_of(sent(key=b"a"), sent(key=b"a"), sent(key=b"b"), sent(topic="other", key=b"a"))
    assert list(queue.choose(0)) == [1, 3, 4]


def test_i6_a_partition_is_a_lane_too() -> None:
    queue = queue_of(sent(partition=2), sent(key=b"a", partition=2), sent(key=b"a"), sent())
    assert list(queue.choose(0)) == [1, 4]


@pytest.mark.parametrize("why", ["flying", "waiting"])
def test_i6_a_lane_stands_while_its_first_message_is_not_stored(why: str) -> None:
    queue = queue_of(sent(key=b"a"), sent(key=b"a"))
    first = queue.choose(0)[1]
    first.fly()
    if why == "waiting":
        first.failed(AGAIN, 0, in_doubt=False)
    assert not queue.choose(199)
    queue.finish(SendResult(1, b""))
    assert list(queue.choose(199)) == [2]


def test_a_message_tried_in_vain_goes_again_after_its_pause() -> None:
    queue = queue_of(sent(), sent())
    first = queue.choose(0)[1]
    first.fly()
    first.failed(AGAIN, 0, in_doubt=False)
    assert list(queue.choose(199)) == [2]
    assert queue.pauses_ms(150) == [50]
    assert list(queue.choose(200)) == [1, 2]
    assert queue.pauses_ms(200) == []


def test_i8_there_is_room_for_so_many_messages_and_bytes() -> None:
    assert OutboxQueue().room() == HELD_MAX
    assert queue_of(sent(), sent()).room() == HELD_MAX - 2
    assert queue_of(sent(), size=HELD_BYTES_MAX - 1).room() == HELD_MAX - 1
    assert queue_of(sent(), size=HELD_BYTES_MAX).room() == 0


def test_a_result_is_had_until_somebody_takes_it_away() -> None:
    queue = queue_of(sent(), sent())
    held = queue.choose(0)[1]
    assert queue.has(1, held)
    queue.finish(SendResult(1, b"stored"))
    assert not queue.has(1, held)
    assert (len(queue), 1 in queue, 2 in queue, 3 in queue) == (1, True, True, False)
    assert queue.numbers() == [2, 1]
    queue.confirmed([SendResult(1, b"stored")])
    assert 1 not in queue


def test_what_the_broker_was_given_may_have_been_sent() -> None:
    queue = queue_of(sent(), sent(), sent())
    chosen = queue.choose(0)
    chosen[1].fly()
    chosen[2].failed(AGAIN, 0, in_doubt=True)
    chosen[2].failed(AGAIN, 0, in_doubt=False)
    assert queue.never_sent() == [3]


def test_a_message_taken_again_is_another_one() -> None:
    queue = queue_of(sent())
    held = queue.choose(0)[1]
    queue.clear()
    assert not queue.numbers()
    queue.add(TakenMessage(1, 0, in_doubt=True, body=b""), sent())
    assert not queue.has(1, held)
    assert not queue.failing()
    queue.choose(0)[1].failed(AGAIN, 0, in_doubt=False)
    assert queue.failing()
