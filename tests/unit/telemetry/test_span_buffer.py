"""Each span is counted once as made, and once as written or dropped."""

from __future__ import annotations

from ackd.telemetry.span_buffer import BATCH_SPANS, SpanBuffer
from ackd.telemetry.spans import SpanEvent
from ackd.telemetry.tracecount import TraceCounts
from ackd.telemetry.traceway import TraceBatch

ACK, RECEIVE, EXPIRE = SpanEvent.ACK, SpanEvent.RECEIVE, SpanEvent.EXPIRE


class Scene:
    """A buffer, and the batches that left it. `room`: whether there is some."""

    def __init__(self) -> None:
        self.batches: list[TraceBatch] = []
        self.room = True
        self.buffer = SpanBuffer("of", TraceCounts(None, "boot"), self.offer)

    def offer(self, batch: TraceBatch) -> bool:
        self.batches.append(batch)
        return self.room

    def counted(self, event: SpanEvent) -> tuple[int, int, int]:
        """Made, written, dropped."""
        counts = self.buffer.counts
        return counts.made[event], counts.written[event], counts.dropped[event]


def test_a_batch_has_what_was_collected_and_is_counted_when_it_is_written() -> None:
    scene = Scene()
    scene.buffer.add(ACK, ["a", "b"])
    scene.buffer.add(RECEIVE, ["c"])
    scene.buffer.flush()
    (batch,) = scene.batches
    assert (batch.resource, batch.spans) == ("of", ["a", "b", "c"])
    assert (scene.counted(ACK), scene.counted(RECEIVE)) == ((2, 0, 0), (1, 0, 0))
    scene.buffer.finished(batch, 0)
    assert (scene.counted(ACK), scene.counted(RECEIVE)) == ((2, 2, 0), (1, 1, 0))


def test_nothing_is_no_batch_and_no_span_leaves_twice() -> None:
    scene = Scene()
    scene.buffer.flush()
    scene.buffer.add(ACK, ["a"])
    scene.buffer.flush()
    scene.buffer.flush()
    scene.buffer.add(RECEIVE, ["b"])
    scene.buffer.flush()
    assert [batch.spans for batch in scene.batches] == [["a"], ["b"]]
    scene.buffer.finished(scene.batches[1], 0)
    assert (scene.counted(ACK), scene.counted(RECEIVE)) == ((1, 0, 0), (1, 1, 0))


def test_a_full_batch_leaves_at_once() -> None:
    scene = Scene()
    scene.buffer.add(ACK, ["a"] * (BATCH_SPANS - 1))
    assert not scene.batches
    scene.buffer.add(ACK, ["a"])
    assert len(scene.batches[0]) == BATCH_SPANS


def test_what_has_no_room_is_dropped() -> None:
    scene = Scene()
    scene.room = False
    scene.buffer.add(ACK, ["a", "b"])
    scene.buffer.flush()
    assert scene.counted(ACK) == (2, 0, 2)


def test_a_batch_that_was_refused_as_a_whole_is_dropped() -> None:
    scene = Scene()
    scene.buffer.add(ACK, ["a", "b"])
    scene.buffer.flush()
    scene.buffer.finished(scene.batches[0], 2)
    assert scene.counted(ACK) == (2, 0, 2)


def test_one_span_may_stand_for_many_messages_that_were_expected() -> None:
    scene = Scene()
    scene.buffer.expect(RECEIVE, 10)
    scene.buffer.expect(RECEIVE, -3)
    scene.buffer.put(RECEIVE, ["batch"], 7)
    scene.buffer.flush()
    scene.buffer.finished(scene.batches[0], 0)
    assert scene.counted(RECEIVE) == (7, 7, 0)


def test_a_span_that_cannot_be_made_is_dropped() -> None:
    scene = Scene()
    scene.buffer.lost(EXPIRE)
    scene.buffer.expect(ACK, 1)
    scene.buffer.drop(ACK)
    assert (scene.counted(EXPIRE), scene.counted(ACK)) == ((1, 0, 1), (1, 0, 1))
