"""A pattern that matches a mirror of ackd's topics reads no copies: it would be a loop (R25)."""

from __future__ import annotations

import pytest

from ackd.core.ids import TopicPartition
from ackd.engine.partition.copy_headers import ORIGIN
from ackd.engine.retry.copy_filter import OwnCopyFilter
from ackd.ports import Fetched, Record
from tests.unit.engine.world import NAME, World, record

RETRY = "ackd.retry.work"
COPY = Record(4, b"k", b"v", ((ORIGIN, b"x"),), 1)


def fetched(topic: str) -> Fetched:
    return Fetched(TopicPartition(topic, 0), 1, [record(3), COPY, record(5)])


@pytest.mark.parametrize(
    ("topics", "topic", "kept"),
    [
        (("^.*",), "eu.ackd.retry.work", [3, 5]),
        (("^.*", "orders"), "orders", [3, 4, 5]),  # named in full: wanted as it is
        (("^.*",), RETRY, [3, 4, 5]),  # its own retry topic
        (("orders",), "eu.orders", [3, 4, 5]),  # without a pattern nothing comes by mistake
    ],
)
async def test_copies_are_left_out_where_nobody_named_their_topic(
    world: World, topics: tuple[str, ...], topic: str, kept: list[int]
) -> None:
    copy_filter = OwnCopyFilter(NAME, topics, (RETRY,), world.metrics)
    assert [each.offset for each in copy_filter.sift(fetched(topic))] == kept
    ignored = world.count("ackd_copies_ignored_total", subscription=NAME)
    assert ignored == 3 - len(kept)
