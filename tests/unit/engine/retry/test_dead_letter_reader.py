"""Dead letters are read without a group: whose they are, from where, and how far (I8)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ackd.core.dead_letter_key import dead_key
from ackd.core.ids import TopicPartition
from ackd.core.origin import Origin
from ackd.engine.partition.copy_headers import RetryCopy
from ackd.engine.retry import dead_letter_reader
from ackd.engine.retry.dead_letter_reader import (
    NEAR,
    DeadLetterLog,
    Letter,
    open_dead_log,
    read_id,
)
from ackd.errors import BadParameterError, BrokerError
from ackd.ports import ConsumerEvent, EndReached, Fetched, OutOfRange, Record, TopicInfo
from tests.unit.engine.operation_stage import DEAD_ID, DEAD_LETTER_TOPIC, OperationStage
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, TestConsumer, World

COPY = RetryCopy(Origin("cluster", TOPIC_ID, TOPIC, 0, 7), NAME, *(9, 7, 5, 4, 0, 900, 800))
TP = TopicPartition(DEAD_LETTER_TOPIC, 0)


@pytest.fixture
async def stage(world: World) -> OperationStage:
    return OperationStage(world)


@pytest.fixture
async def log(stage: OperationStage) -> AsyncIterator[DeadLetterLog]:
    async with open_dead_log(stage.world.state, stage.world.context) as log:
        yield log


def offsets(letters: list[Letter]) -> list[int]:
    return [each.record.offset for each in letters]


async def test_letters_of_others_are_passed_over_but_read(
    stage: OperationStage, log: DeadLetterLog
) -> None:
    stage.broker.writes(DEAD_LETTER_TOPIC, COPY)
    stage.broker.writes(DEAD_LETTER_TOPIC, replace(COPY, subscription="other"))
    stage.broker.writes(DEAD_LETTER_TOPIC, None)
    stage.broker.writes(DEAD_LETTER_TOPIC, COPY)
    letters, unread = await log.read(0, 0, 4, 100)
    assert (offsets(letters), unread) == ([0, 3], 4)
    assert await log.range(0) == (0, 4)


async def test_i8_it_reads_as_many_as_are_wanted_and_goes_on_from_there(
    stage: OperationStage, log: DeadLetterLog
) -> None:
    for _ in range(5):
        stage.broker.writes(DEAD_LETTER_TOPIC, COPY)
    letters, unread = await log.read(0, 0, 5, 2)
    assert (offsets(letters), unread) == ([0, 1], 2)
    letters, unread = await log.read(0, unread, 4, 100)  # not beyond what is asked for
    assert (offsets(letters), unread) == ([2, 3], 4)


async def test_i8_a_read_ends_when_it_has_enough_bytes(
    stage: OperationStage, log: DeadLetterLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_reader, "BYTES_MAX", 1_000)
    for _ in range(3):
        stage.broker.writes(DEAD_LETTER_TOPIC, COPY, value=bytes(900))
    letters, unread = await log.read(0, 0, 3, 100)
    assert (offsets(letters), unread) == ([0], 1)


async def test_one_letter_is_found_by_its_place(stage: OperationStage, log: DeadLetterLog) -> None:
    stage.broker.writes(DEAD_LETTER_TOPIC, None)
    stage.broker.writes(DEAD_LETTER_TOPIC, COPY)
    found = await log.one(0, 1)
    assert found is not None
    assert (found.id, found.view("dead").message) == ("0-1", f"{TOPIC}/0/7")
    assert [await log.one(*place) for place in ((0, 0), (0, 2), (1, 0))] == [None] * 3


async def test_a_letter_has_a_place_and_a_record_of_its_own(
    stage: OperationStage, log: DeadLetterLog
) -> None:
    stage.broker.writes(DEAD_LETTER_TOPIC, COPY, own=(("mine", b"1"),))
    letter = await log.one(0, 0)
    assert letter is not None
    assert log.origin_record(letter) == Origin("cluster", DEAD_ID, DEAD_LETTER_TOPIC, 0, 0)
    assert log.key(0) == dead_key("cluster", NAME, DEAD_ID, 0)
    assert letter.whole("dead").headers == (("mine", b"1"),)


async def test_a_topic_that_does_not_exist_has_no_partitions(stage: OperationStage) -> None:
    del stage.broker.topics[DEAD_LETTER_TOPIC]
    async with open_dead_log(stage.world.state, stage.world.context) as log:
        assert (list(log.partitions), await log.one(0, 0)) == ([], None)
        with pytest.raises(BrokerError, match="no dead-letter topic"):
            log.key(0)


async def test_before_the_cluster_is_known_nothing_is_read(stage: OperationStage) -> None:
    """R1."""
    stage.world.state.cluster = ""
    with pytest.raises(BrokerError, match="not connected"):
        async with open_dead_log(stage.world.state, stage.world.context):
            pass


@pytest.mark.parametrize(
    "text", ["", "3", "-3", "3-", "a-1", "1-1-1", "1--1", "\u0663-1", "1-" + "1" * 19]
)
def test_an_id_that_no_letter_has_is_refused(text: str) -> None:
    with pytest.raises(BadParameterError, match="not of the form"):
        read_id(text)


def test_an_id_is_a_partition_and_an_offset() -> None:
    assert read_id("3-17") == (3, 17)


# --- seeking


class Slow(TestConsumer):
    """Brings what the test has written down, one list at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.brings: list[list[ConsumerEvent]] = []

    async def events(self) -> list[ConsumerEvent]:
        return self.brings.pop(0)


def letter(offset: int) -> Record:
    return Record(offset, b"k", b"v", (), 1_000)


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def far_log(slow: Slow) -> DeadLetterLog:
    return DeadLetterLog(slow, NAME, "cluster", TopicInfo(DEAD_LETTER_TOPIC, DEAD_ID, 2))


async def test_it_reads_on_to_what_is_near_and_seeks_what_is_not(
    slow: Slow, far_log: DeadLetterLog
) -> None:
    slow.brings = [
        [Fetched(TP, 1, [letter(0)])],
        [Fetched(TP, 1, [letter(1), letter(NEAR)])],
        [Fetched(TP, 2, [letter(5_000)])],
        [Fetched(TP, 3, [letter(2)])],
    ]
    for offset in (0, NEAR, 5_000, 2):
        _, unread = await far_log.read(0, offset, offset + 1, 1)
        assert unread == offset + 1
    assert slow.fetched_from == [(TP, 0), (TP, 5_000), (TP, 2)]
    assert slow.brings == []


async def test_another_partition_ends_the_fetch_of_the_last(
    slow: Slow, far_log: DeadLetterLog
) -> None:
    other = TopicPartition(DEAD_LETTER_TOPIC, 1)
    slow.brings = [[Fetched(TP, 1, [letter(0)])], [Fetched(TP, 1, [letter(1)])]]
    slow.brings.append([Fetched(other, 2, [letter(0)])])
    await far_log.read(0, 0, 1, 1)
    await far_log.read(1, 0, 1, 1)
    assert slow.told == [("stop", TP)]
    assert slow.fetched_from == [(TP, 0), (other, 0)]
    assert slow.brings == []  # what an earlier fetch still brought is not taken


async def test_what_retention_deletes_meanwhile_is_passed_over(
    slow: Slow, far_log: DeadLetterLog
) -> None:
    slow.brings = [
        [OutOfRange(TP, 1, 40, 41)],
        [Fetched(TP, 2, [letter(40)]), EndReached(TP, 2, 41)],
    ]
    _, unread = await far_log.read(0, 0, 41, 100)
    assert unread == 41
    assert slow.fetched_from == [(TP, 0), (TP, 40)]


async def test_a_log_that_ends_with_deleted_records_is_read_to_its_end(
    slow: Slow, far_log: DeadLetterLog
) -> None:
    """Compaction and transactions leave offsets without a record."""
    slow.brings = [[Fetched(TP, 1, [letter(0)]), EndReached(TP, 1, 9)]]
    assert await far_log.read(0, 0, 9, 100) == ([], 9)
