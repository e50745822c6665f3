"""R23: a jump of the store's clock is measured for certain or not at all. Times in ms."""

import pytest

from ackd.engine.cluster.store_clock import StoreClock


def measured(before: tuple[int, int, int], after: tuple[int, int, int]) -> int:
    """The jump between the last heartbeat of one run and the first of the next."""
    clock = StoreClock()
    clock.seen("one", *before)
    clock.seen("two", *after)
    return clock.jump_ms


@pytest.mark.parametrize(
    ("sent_ms", "read_ms"),
    [(1_300, 1_302), (1_300, 4_900), (1_300, 61_300)],
    ids=["prompt", "frozen for seconds", "away for a minute"],
)
def test_slow_answers_make_up_no_jump(sent_ms: int, read_ms: int) -> None:
    """The server answered at some instant between; wherever it was, nothing jumped."""
    for answered_ms in (sent_ms, (sent_ms + read_ms) // 2, read_ms):
        assert measured((51_000, 1_000, 1_001), (50_000 + answered_ms, sent_ms, read_ms)) == 0
        late_before = (50_000 + 1_000, 1_000, 1_290)
        assert measured(late_before, (50_000 + answered_ms, sent_ms, read_ms)) == 0


@pytest.mark.parametrize("jump_ms", [40_000, 300, -300, -40_000])
def test_jump_is_measured_to_the_length_of_the_calls(jump_ms: int) -> None:
    found = measured((51_000, 1_000, 1_003), (51_302 + jump_ms, 1_300, 1_304))
    assert abs(found) <= abs(jump_ms), "never more than there was"
    assert abs(found - jump_ms) <= 10


def test_clock_of_one_run_may_step_and_a_first_run_is_compared_with_nothing() -> None:
    clock = StoreClock()
    assert not clock.knows("one")
    assert not clock.knows("")
    clock.seen("one", 51_000, 1_000, 1_001)
    clock.seen("one", 99_000, 1_300, 1_301)
    assert clock.knows("one")
    assert clock.jump_ms == 0
    clock.seen("two", 99_300, 1_600, 1_601)
    assert clock.knows("two")
    assert not clock.knows("one")
    assert clock.jump_ms == 0
