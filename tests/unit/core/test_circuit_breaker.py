"""The circuit breaker: when it is pulled, how trials follow each other, what lets it go."""

from ackd.core.circuit_breaker import BreakerRules, BreakerState

ROW = BreakerRules(failures=3, share=0, window_ms=1_000, trial_ms=100)
SHARE = BreakerRules(failures=0, share=0.5, window_ms=1_000, trial_ms=100)


def test_failures_in_a_row_pull_it_and_an_ack_between_them_does_not() -> None:
    breaker = BreakerState()
    for _ in range(10):
        assert not breaker.saw(0, 2, ROW, 0)
        assert not breaker.saw(1, 0, ROW, 0)
    assert not breaker.saw(0, 2, ROW, 0)
    assert breaker.saw(0, 1, ROW, 0)
    assert (breaker.on, breaker.why) == (True, "3 failures in a row")
    assert not breaker.saw(0, 1, ROW, 0), "no news"


def test_trials_get_rarer_up_to_a_bound_and_an_ack_ends_it() -> None:
    breaker = BreakerState()
    breaker.saw(0, 3, ROW, 0)
    now_ms, waits = 0, []
    for _ in range(9):
        assert breaker.room(breaker.next_ms - 1) == 0
        assert breaker.room(breaker.next_ms) == 1
        waits.append(breaker.next_ms - now_ms)
        now_ms = breaker.next_ms
        breaker.tried(ROW, now_ms)
    assert waits[:3] == [100, 150, 225]
    assert waits[-1] == 1_000
    assert breaker.saw(1, 0, ROW, now_ms)
    assert not breaker.on
    assert not breaker.saw(0, 2, ROW, now_ms), "counting begins anew"
    assert breaker.saw(0, 1, ROW, now_ms)
    assert breaker.next_ms == now_ms + 100


def test_a_share_counts_over_its_window_and_not_of_a_few() -> None:
    breaker = BreakerState()
    assert not breaker.saw(0, 9, SHARE, 0), "nine say nothing"
    breaker = BreakerState()
    assert not breaker.saw(8, 0, SHARE, 0)
    assert not breaker.saw(0, 7, SHARE, 500)
    assert breaker.saw(0, 1, SHARE, 500)
    assert breaker.why == "8 of the last 16 failed"
    breaker = BreakerState()
    breaker.saw(0, 9, SHARE, 0)
    assert not breaker.saw(0, 5, SHARE, 1_100), "the first nine are out of the window"


def test_a_breaker_that_is_not_wanted_any_more() -> None:
    breaker = BreakerState()
    assert not breaker.release()
    breaker.saw(0, 3, ROW, 0)
    assert breaker.release()
    assert not breaker.on


def test_a_trial_that_asked_the_application_nothing_is_none() -> None:
    """A repeat that is settled without delivery: the wait of before counts on, and is over."""
    breaker = BreakerState()
    breaker.not_tried(0)
    assert not breaker.on
    breaker.saw(0, 3, ROW, 0)
    breaker.not_tried(50)
    assert breaker.room(99) == 0, "no trial was there"
    for _ in range(20):
        breaker.tried(ROW, 100)
        assert breaker.next_ms == 250
        breaker.not_tried(101)
        assert breaker.room(101) == 1
    breaker.tried(ROW, 101)
    breaker.tried(ROW, 251)
    assert breaker.next_ms == 251 + 225
