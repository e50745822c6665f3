"""The subscriptions of a process beat together."""

from ackd.engine.base.pace import Pace


def test_alone_it_is_the_whole_period() -> None:
    pace = Pace()
    assert pace.rest_ms("a", 0, 300) == 300
    assert pace.rest_ms("a", 100, 300) == 300  # it has beaten before its time


def test_who_is_due_soon_after_another_joins_that_one() -> None:
    pace = Pace()
    pace.rest_ms("a", 0, 300)
    assert pace.rest_ms("b", 100, 300) == 200
    assert pace.rest_ms("c", 140, 300) == 160
    assert [pace.rest_ms(name, 301, 300) for name in "abc"] == [300, 300, 300]


def test_nobody_beats_twice_as_often_to_join() -> None:
    pace = Pace()
    pace.rest_ms("a", 0, 300)
    assert pace.rest_ms("b", 151, 300) == 300


def test_a_subscription_that_beats_no_more_holds_nobody() -> None:
    pace = Pace()
    pace.rest_ms("a", 0, 300)
    assert pace.rest_ms("b", 10_000, 300) == 300


def test_wherever_they_begin_all_beat_at_one_time_soon() -> None:
    pace, due_ms = Pace(), {name: 37 * place for place, name in enumerate("abcdefghij")}
    for _ in range(60):
        name = min(due_ms, key=lambda each: (due_ms[each], each))
        due_ms[name] += pace.rest_ms(name, due_ms[name], 300)
    assert max(due_ms.values()) - min(due_ms.values()) in (0, 300)
