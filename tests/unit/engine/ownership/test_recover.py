"""What a commit's metadata gives back to a record that lacks it (R8, R10)."""

from __future__ import annotations

from ackd.core.bitmap import ChunkedBitmap
from ackd.core.commit_metadata import CommittedProgress
from ackd.core.record.operations import Gap, ReplayFinished
from ackd.core.record.protocol import CallStatus, SlotView, Snapshot
from ackd.core.record.transitions import State
from ackd.engine.ownership.recover import lacking, open_below


def _commit(*ranges: tuple[int, int], epoch: int = 2, base: int = 10) -> CommittedProgress:
    return CommittedProgress("cluster", "topic", epoch, base, 1, ranges)


def _record(*finished: tuple[int, int], leased: tuple[int, ...] = (), mark: int = 10) -> Snapshot:
    bits = ChunkedBitmap()
    for start, end in finished:
        bits.add_range(start, end)
    slots = [SlotView(each, State.LEASED, 1, 0, 5, 5, 9, 9) for each in leased]
    chunks = {index: bytes(chunk) for index, chunk in bits.chunks.items()}
    return Snapshot(CallStatus.OK, epoch=2, watermark=mark, slots=slots, chunks=chunks)


def _gap(start: int, end: int) -> Gap:
    """How these were finished is not said."""
    return Gap(start, end, repair=True)


def test_the_same_position_does_not_mean_the_same_ranges() -> None:
    """R10: the watermark stood, the acks above it were rolled back."""
    ranges = (12, 15), (20, 30)
    assert lacking(_commit(*ranges), _record((12, 15))) == [_gap(20, 30)]
    assert lacking(_commit(*ranges), _record((12, 15), (20, 30))) == []


def test_a_store_that_is_ahead_may_lack_something_too() -> None:
    """R10: union, whoever is ahead; what lies below the watermark is known."""
    assert lacking(_commit((12, 15), (20, 30)), _record(mark=24)) == [_gap(24, 30)]


def test_a_finished_message_leaves_the_window_with_its_lease() -> None:
    """I2: a hole would leave it, and it would be handed out again."""
    assert lacking(_commit((12, 15)), _record(leased=(11, 13, 15))) == [
        ReplayFinished(13),
        _gap(12, 15),
    ]


def test_ranges_of_an_earlier_epoch_mean_nothing() -> None:
    """R8: an operator wanted these messages again."""
    assert lacking(_commit((12, 15), epoch=1), _record()) == []


def test_what_is_being_sent_back_keeps_its_origin_record_when_the_commit_passes_it() -> None:
    """R2, R10: an ADVANCE alone would end the lease that is forwarded there."""
    record = _record(leased=(11, 13, 15))
    record.slots = [each._replace(state=State.MOVING) for each in record.slots[1:]]
    assert open_below(15, record) == [ReplayFinished(13)]


def test_a_lease_that_the_commit_has_passed_goes_on_in_a_origin_record() -> None:
    """I7: its message was acked or sent back, and an ADVANCE alone would say that it was acked."""
    record = _record(leased=(11, 13, 15))
    told = [ReplayFinished(each) for each in (11, 13)]
    assert open_below(15, record) == told
