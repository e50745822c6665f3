"""What readiness says of a truncated log ends once the partition is fetched anew or let go (R1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from ackd.core.ids import TopicPartition
from ackd.ports import Condition, ConsumerSpec, OutOfRange
from ackd_adapters.kafka.admin import AdminQuestions, RangeQuestion
from ackd_adapters.kafka.config import KafkaOptions
from ackd_adapters.kafka.consumer import KafkaConsumer

TP, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
DETAIL = "Broker: Log truncation detected (broker end offset is 40)"


class Admin(AdminQuestions):
    """Asks no broker: every log is 0 to 120."""

    def __init__(self) -> None:
        super().__init__(KafkaOptions(bootstrap_servers="127.0.0.1:1"))

    def ask_range(self, partition: TopicPartition) -> RangeQuestion:
        del partition
        question = RangeQuestion(Future(), Future())
        question.first.set_result(0)
        question.end.set_result(120)
        return question


@pytest.mark.parametrize(
    "over",
    [
        lambda consumer: consumer.fetch_from(TP, 40),
        lambda consumer: consumer.stop_fetch(TP),
    ],
    ids=["fetched-anew", "let-go"],
)
async def test_r1_a_truncation_is_told_until_it_is_over(
    over: Callable[[KafkaConsumer], object],
) -> None:
    spec = ConsumerSpec("work", ("orders",), "work-1")
    consumer = KafkaConsumer(KafkaOptions(bootstrap_servers="127.0.0.1:1"), spec, Admin())
    sessions = {each: consumer.fetch_from(each, 100) for each in (TP, OTHER)}
    for attempt, each in enumerate((TP, OTHER), start=1):
        consumer._ask_range(each, attempt, 100, DETAIL)
    async with asyncio.timeout(10):
        events = [*await consumer.events()]
        while len(events) < 4:
            events += await consumer.events()
    assert [each for each in events if isinstance(each, OutOfRange)] == [
        OutOfRange(each, session, 0, 120, cut=40) for each, session in sessions.items()
    ]
    assert codes(consumer) == {"fetch/truncated/orders/0", "fetch/truncated/orders/1"}
    over(consumer)
    assert codes(consumer) == {"fetch/truncated/orders/1"}
    async with asyncio.timeout(10):
        (told,) = await consumer.events()
    assert told == Condition("fetch/truncated/orders/0", DETAIL, cleared=True)


def codes(consumer: KafkaConsumer) -> set[str]:
    """What is wrong now."""
    return {each.code for each in consumer.conditions()}
