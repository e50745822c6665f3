"""Spans about many messages: every delivery and every ack is in one, in the order of events."""

from __future__ import annotations

import pytest

from ackd.engine.tracing.batches import OFFSETS_MAX, SpanBatches
from ackd.telemetry.spans import MessageSpans, SpanEvent, SpanPlace
from tests.unit.engine.tracing.span_stage import Flat, SpanStage
from tests.unit.engine.world import NAME, TOPIC, TOPIC_ID, World

LIVES = MessageSpans(SpanPlace("log", "cluster", NAME, NAME, TOPIC, TOPIC_ID, 0), 0, "shop")


@pytest.fixture
def stage(world: World) -> SpanStage:
    return SpanStage(world)


def batches(stage: SpanStage, *, copies: bool = False) -> SpanBatches:
    """A partition's, flushed with the rest."""
    made = SpanBatches(stage.traces, copies=copies)
    stage.traces.collect(made, lambda: made.flush(LIVES))
    return made


def shown(spans: list[Flat]) -> list[tuple[str, int, str]]:
    """Event, count and offsets of each."""
    return [
        (each["ackd.event"], each["messaging.batch.message_count"], each.get("ackd.offsets", ""))
        for each in spans
    ]


async def test_one_span_for_the_deliveries_of_many_replies(stage: SpanStage) -> None:
    made = batches(stage)
    made.granted(LIVES, [3, 1, 2], 0, fence=5_000_000)
    made.granted(LIVES, [9], 1, fence=7_000_000)
    (span,) = stage.seen()
    assert shown([span]) == [("receive", 4, "1-3,9")]
    assert span["ackd.again"] == 1
    assert (span["start"], span["end"]) == (5_000_000_000, 7_000_000_000)
    assert stage.seen() == []
    made.granted(LIVES, [10], 0, fence=8_000_000)
    assert "ackd.again" not in stage.seen()[0], "of this span none"
    assert stage.balanced()


async def test_one_span_for_the_acks(stage: SpanStage) -> None:
    made = batches(stage)
    made.acked(LIVES, [4, 5], 2_000)
    made.acked(LIVES, [7], 3_000)
    (span,) = stage.seen()
    assert shown([span]) == [("settle", 3, "4-5,7")]
    assert (span["start"], span["end"]) == (2_000_000_000, 3_000_000_000)
    assert "ackd.again" not in span


async def test_the_times_of_a_batch_are_its_own(stage: SpanStage) -> None:
    made = batches(stage)
    made.acked(LIVES, [4], 2_000)
    made.granted(LIVES, [5], 0, fence=2_000_000)
    stage.seen()
    made.acked(LIVES, [5], 9_000)
    made.granted(LIVES, [6], 0, fence=9_000_000)
    for span in stage.seen():
        assert span["start"] == 9_000_000_000


async def test_i2_a_delivery_after_an_ack_is_in_a_later_span(stage: SpanStage) -> None:
    """Both in one flush would look like a delivery before the ack."""
    made = batches(stage)
    made.granted(LIVES, [1, 2], 0, fence=1_000_000)
    made.acked(LIVES, [1], 1_100)
    made.granted(LIVES, [1], 1, fence=1_200_000)
    found = shown(stage.seen())
    assert found == [("receive", 2, "1-2"), ("settle", 1, "1"), ("receive", 1, "1")]
    assert stage.balanced()


async def test_an_ack_that_is_reported_twice_counts_once(stage: SpanStage) -> None:
    """By the owner's own reply and by the journal."""
    made = batches(stage)
    made.acked(LIVES, [1, 2], 1_000)
    made.acked(LIVES, [2, 3], 1_001)
    assert shown(stage.seen()) == [("settle", 3, "1-3")]
    assert stage.balanced(), "the second report of 2 is expected no more"


async def test_spans_are_bounded(stage: SpanStage) -> None:
    made = batches(stage)
    made.granted(LIVES, range(OFFSETS_MAX), 0, fence=1_000_000)
    stage.traces.flush()
    assert sum(stage.traces.counts.made) == OFFSETS_MAX
    assert len(stage._left) == 1, "written before any flush of the batches"
    made.acked(LIVES, range(OFFSETS_MAX), 1_000)
    stage.traces.flush()
    assert len(stage._left) == 2


async def test_offsets_of_copies_say_nothing_and_are_left_out(stage: SpanStage) -> None:
    """They are places in the retry topic; a report would take them for messages."""
    made = batches(stage, copies=True)
    made.granted(LIVES, [1, 2], 0, fence=1_000_000)
    (span,) = stage.seen()
    assert shown([span]) == [("receive", 2, "")]
    assert span["ackd.copies"] is True


async def test_each_span_has_ids_of_its_own(stage: SpanStage) -> None:
    """Two flushes in one microsecond of the store's clock are two spans."""
    made = batches(stage)
    for _ in range(2):
        made.granted(LIVES, [1], 0, fence=1_000_000)
        made.flush(LIVES)
    assert len({each["trace"] for each in stage.seen()}) == 2
    assert stage.traces.counts.made[SpanEvent.RECEIVE] == 2
