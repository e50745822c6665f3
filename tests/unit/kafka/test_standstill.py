"""When a fetched partition counts as forgotten by its client, and when it is only slow or idle."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from ackd.core.ids import TopicPartition
from ackd.errors import BrokerError
from ackd_adapters.kafka.log_check import Tail
from ackd_adapters.kafka.standstill import (
    IDLE_S,
    LOOK_S,
    SILENT_S,
    SLOW_S,
    FetchWatch,
    PartitionFetch,
)

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Scene:
    """A watch whose time, logs and client are the test's."""

    def __init__(self) -> None:
        self.fetched = {A: PartitionFetch(1, 1, 5), B: PartitionFetch(1, 2, 0)}
        self.log_ends: dict[TopicPartition, int | Exception] = {A: 9, B: 0}
        self.asked: list[Sequence[TopicPartition]] = []
        self.begun: list[TopicPartition] = []
        self.answers = True
        self.now_s = 1000.0
        self.drained_s = float("inf")
        self.watch = FetchWatch(
            self.fetched, self._ends, lambda: self.drained_s, self._begin, lambda: self.now_s
        )

    def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Future[int]]:
        self.asked.append(partitions)
        answers: dict[TopicPartition, Future[int]] = {each: Future() for each in partitions}
        for partition, answer in answers.items() if self.answers else ():
            end = self.log_ends[partition]
            if isinstance(end, int):
                answer.set_result(end)
            else:
                answer.set_exception(end)
        return answers

    def _begin(self, partition: TopicPartition, fetch: PartitionFetch) -> None:
        self.begun.append(partition)
        fetch.attempt += 10

    async def after(self, seconds: float) -> None:
        """Let the watch look as often as it would in this time."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += LOOK_S + 0.001
            self.watch.look()
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    made.watch.close()


async def test_a_forgotten_partition_is_begun_again_within_three_seconds(scene: Scene) -> None:
    await scene.after(3)
    assert scene.begun == [A]


async def test_an_idle_one_is_asked_about_and_left_alone(scene: Scene) -> None:
    scene.log_ends[A] = 5
    await scene.after(100)
    assert scene.begun == []
    asked = sum(A in each for each in scene.asked)
    assert 100 / IDLE_S - 1 <= asked <= 100 / IDLE_S + 4


async def test_one_that_gets_messages_is_not_asked_about(scene: Scene) -> None:
    del scene.fetched[B]
    for _ in range(20):
        scene.fetched[A].next += 1
        await scene.after(1)
    assert not scene.asked
    assert not scene.begun


async def test_what_waits_in_the_client_behind_others_is_not_begun_again(scene: Scene) -> None:
    scene.drained_s = 0.0
    await scene.after(60)
    assert scene.begun == []
    scene.drained_s = float("inf")
    await scene.after(1)
    assert scene.begun == [A]


async def test_a_slow_one_gets_twice_the_time_after_each_restart(scene: Scene) -> None:
    await scene.after(60)
    assert 3 <= len(scene.begun) <= 5  # after 2, 6, 12, 24, 48 s
    await scene.after(4 * SLOW_S)
    assert len(scene.begun) <= 12


async def test_one_that_moves_on_after_its_restart_is_like_any_other(scene: Scene) -> None:
    await scene.after(30)
    before = len(scene.begun)
    scene.fetched[A].next += 1
    await scene.after(3)
    assert len(scene.begun) == before + 1


@pytest.mark.parametrize("change", ["paused", "unchecked", "gone"])
async def test_one_that_is_not_fetched_is_not_watched(scene: Scene, change: str) -> None:
    await scene.after(SILENT_S)
    if change == "paused":
        scene.fetched[A].paused = True
    elif change == "unchecked":
        scene.fetched[A].unchecked = Tail(5, 1)
    else:
        del scene.fetched[A]
    await scene.after(20)
    assert scene.begun == []


async def test_without_a_leader_it_asks_on(scene: Scene) -> None:
    scene.log_ends[A] = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    await scene.after(10)
    assert scene.begun == []
    scene.log_ends[A] = 6
    await scene.after(3)
    assert scene.begun == [A]


async def test_a_closed_connection_ends_no_watch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: Sequence[TopicPartition]) -> dict[TopicPartition, Future[int]]:
        raise BrokerError("not connected")

    with monkeypatch.context() as patched:
        patched.setattr(scene.watch, "_ends", closed)
        await scene.after(10)
    await scene.after(3)
    assert scene.begun == [A]


async def test_a_question_without_an_answer_is_asked_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ackd_adapters.kafka.standstill.ANSWER_S", 0.01)
    scene.answers = False
    await scene.after(3)
    scene.answers = True
    await asyncio.sleep(0.05)
    await scene.after(3)
    assert scene.begun == [A]
