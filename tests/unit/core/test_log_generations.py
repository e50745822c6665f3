"""Offsets that a broker uses again, told by its store times (I1, I2, R1)."""

from itertools import pairwise

import pytest

from ackd.core.ids import TopicPartition
from ackd.core.lease_token import LeaseKeys
from ackd.core.log_generations import (
    CUTS_MAX,
    DENSE,
    GENERATION,
    GENERATIONS_MAX,
    SAMPLES_MAX,
    GenerationsExhaustedError,
    LogGenerations,
    Sample,
    partition_of,
    split,
)
from ackd.core.origin import PARTITION_MAX


def came(log: LogGenerations, *messages: tuple[int, int]) -> list[int]:
    """A batch of (offset, store time) comes; the generations."""
    found = [log.of(*each)[0] for each in messages]
    current = [each for each, at in zip(messages, found, strict=True) if at == log.current]
    log.seen(current)
    return found


def test_a_log_that_grows_has_one_generation_whatever_comes_again() -> None:
    log = LogGenerations()
    for start in range(0, 100, 10):
        batch = [(offset, 1_000 + offset) for offset in range(start, start + 10)]
        assert came(log, *batch) == [0] * 10
    assert came(log, (0, 1_000), (57, 1_057), (99, 1_099)) == [0, 0, 0]
    assert log.cuts == []


def test_i1_a_later_message_at_a_lower_offset_begins_a_generation() -> None:
    log = LogGenerations()
    came(log, (0, 100), (9, 109))
    came(log, (10, 110), (19, 119))
    assert log.of(15, 500) == (1, True)
    assert log.cuts == [119]
    # What is left of the old log below the cut is what it was.
    assert log.of(14, 114) == (0, False)
    assert log.of(16, 501) == (1, False)
    assert log.of(14, 499) == (1, False)  # of the new log, and only came later


def test_a_topic_that_was_made_again_begins_at_0() -> None:
    log = LogGenerations()
    came(log, (0, 100), (31, 131))
    for turn in range(1, 5):
        assert came(log, (0, turn * 1_000), (5, turn * 1_000 + 5)) == [turn, turn]
    assert log.of(0, 1_000) == (1, False)


def test_the_cut_is_as_early_as_it_can_be() -> None:
    """A replica's clock may be behind the old one's; what it stores is new nevertheless."""
    log = LogGenerations()
    for offset in range(0, 100, 10):
        came(log, (offset, 1_000 + offset))
    assert log.of(15, 1_080) == (1, True)
    assert log.cuts == [1_020]


def test_i2_a_clock_that_was_set_back_makes_no_message_new() -> None:
    log = LogGenerations()
    messages = [(0, 900), (1, 1_000), (2, 400), (3, 500), (4, 990), (5, 1_001)]
    for each in messages:
        assert came(log, each) == [0]
    assert came(log, *reversed(messages)) == [0] * 6


def test_i1_a_clock_that_is_set_back_after_a_cut_makes_no_message_old() -> None:
    """By its time it would be of the log that was lost, where its offset is finished."""
    log = LogGenerations()
    came(log, (0, 1_000), (99, 1_099))
    assert came(log, (10, 2_000), (11, 2_001)) == [1, 1]
    assert came(log, (12, 500), (13, 501), (60, 548)) == [1, 1, 1]
    assert log.cuts == [1_099]
    assert came(log, (9, 1_009)) == [0], "what is left of the old log"
    assert came(log, (61, 3_000), (62, 3_001)) == [1, 1]
    assert came(log, (12, 500), (11, 2_001)) == [1, 1]
    assert came(log, (30, 4_000), (31, 600)) == [2, 2]


def test_one_thing_is_not_noticed_a_cut_while_the_clock_is_behind() -> None:
    """The assumption that stands in the module's head."""
    log = LogGenerations()
    came(log, (0, 1_000), (9, 1_009))
    assert log.of(5, 1_005) == (0, False)


def test_without_a_time_a_message_counts_as_current() -> None:
    log = LogGenerations()
    came(log, (0, 100), (9, 109))
    assert came(log, (3, 0)) == [0]
    assert came(log, (3, 200), (4, 0)) == [1, 1]
    assert [each.offset for each in log.samples] == [3]


def test_i8_samples_reach_back_and_are_bounded() -> None:
    log, count = LogGenerations(), 5_000
    for offset in range(count):
        came(log, (offset, 1_000 + offset))
        assert len(log.samples) <= SAMPLES_MAX
        assert log.samples == sorted(log.samples)
    offsets = [each.offset for each in log.samples]
    assert offsets[0] == 0
    assert offsets[-DENSE:] == list(range(count - DENSE, count))
    # The further back, the wider apart, and nowhere is a large hole.
    for low, high in pairwise(offsets):
        assert high - low <= (count - low) * 0.6


def test_i8_cuts_are_bounded_and_none_is_forgotten() -> None:
    log = LogGenerations()
    for turn in range(50):
        assert came(log, (0, 1_000 + turn)) == [turn]
    assert (log.current, len(log.cuts)) == (49, CUTS_MAX)
    assert log.merged == 49 - CUTS_MAX
    assert log.of(0, 1_000 + 40) == (40, False)
    assert log.of(0, 1) == (log.merged, False)


def test_a_log_that_is_cut_too_often_is_an_error_and_no_wrong_place() -> None:
    log = LogGenerations(GENERATIONS_MAX - 1, [100], [Sample(9, 200)])
    assert log.of(9, 200) == (GENERATIONS_MAX, False)
    with pytest.raises(GenerationsExhaustedError, match="65535 times"):
        log.of(3, 300)
    assert log == LogGenerations(GENERATIONS_MAX - 1, [100], [Sample(9, 200)])


def test_partitions_of_all_generations_fit_everywhere() -> None:
    last = partition_of(GENERATION - 1, GENERATIONS_MAX)
    assert last == PARTITION_MAX
    assert split(last) == (GENERATION - 1, GENERATIONS_MAX)
    assert split(partition_of(7, 0)) == (7, 0)
    keys = LeaseKeys({1: b"k" * 16}, 1)
    token = keys.signer("s", bytes(16), last).token(1, 2, 3, 4)
    assert LeaseKeys({1: b"k" * 16}, 1).open(token).partition == last
    assert str(TopicPartition("t", last)) == f"t/{PARTITION_MAX}"
