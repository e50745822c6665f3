"""Reports of answers: what is told at once, with a request, and again over another link."""

import pytest

from ackd.engine.peers import answer_reports
from ackd.engine.peers.answer_reports import ARRIVED_MS, WORD_MAX, WORD_MS, AnswerReports
from ackd.engine.peers.frames import NUMBERS_MAX, PeerLost, PeerTaken
from tests.unit.engine.clock import TestClock
from tests.unit.engine.peers.pair import TestLink


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def reports(clock: TestClock) -> AnswerReports:
    return AnswerReports("work", clock)


def test_what_was_taken_goes_with_the_next_request(reports: AnswerReports) -> None:
    link = TestLink()
    reports.taken(link, [1])
    reports.taken(link, [2, 3])
    assert link.heard() == []
    assert reports.with_request(link) == [1, 2, 3]
    assert reports.with_request(link) == []
    reports.tell_all()
    assert link.heard() == []


def test_without_a_request_it_is_told_by_itself(reports: AnswerReports) -> None:
    one, two = TestLink("pod-2"), TestLink("pod-3")
    reports.taken(one, [1])
    reports.taken(two, [2])
    reports.tell_all()
    assert (one.heard(), two.heard()) == ([PeerTaken("work", 1)], [PeerTaken("work", 2)])


def test_r21_what_is_lost_is_told_at_once_and_once(reports: AnswerReports) -> None:
    link, numbers = TestLink(), list(range(NUMBERS_MAX + 1))
    reports.lost(link, numbers)
    first, second = numbers[:NUMBERS_MAX], numbers[NUMBERS_MAX:]
    assert link.heard() == [PeerLost("work", first), PeerLost("work", second)]
    reports.lost(link, second)
    assert link.heard() == []


def test_r21_an_answer_that_comes_again_is_not_lost_after_it_was_taken(
    reports: AnswerReports,
) -> None:
    link = TestLink()
    reports.taken(link, [1])
    reports.lost(link, [1])
    assert link.heard() == []


def test_r21_a_closed_link_leaves_its_reports_to_the_next_one(
    reports: AnswerReports, clock: TestClock
) -> None:
    link = TestLink()
    reports.lost(link, [1])
    clock.pass_ms(ARRIVED_MS + 1)
    reports.lost(link, [2])
    reports.taken(link, [3])
    assert reports.closed(link, [4])
    assert list(reports.unheard()) == [link.name]
    again = TestLink()
    reports.opened(again)
    assert again.heard() == [PeerTaken("work", 3), PeerLost("work", [2, 4])]
    assert list(reports.unheard()) == []


def test_r21_what_is_lost_is_told_without_a_link_for_a_while(
    reports: AnswerReports, clock: TestClock
) -> None:
    link = TestLink()
    reports.taken(link, [1])
    assert reports.closed(link, [2, 3])
    assert list(reports.lost_lately()) == [(link.instance, [2, 3])]
    clock.pass_ms(WORD_MS)
    assert list(reports.lost_lately()) == []
    again = TestLink()
    reports.opened(again)  # it is still said over the next link
    assert PeerLost("work", [2, 3]) in again.heard()


def test_r21_over_a_new_link_only_that_tells(reports: AnswerReports) -> None:
    link = TestLink()
    reports.closed(link, [2])
    reports.opened(TestLink())
    assert list(reports.lost_lately()) == []


def test_i8_what_is_told_without_a_link_is_bounded(reports: AnswerReports) -> None:
    link = TestLink()
    reports.closed(link, list(range(WORD_MAX + 1)))
    assert list(reports.lost_lately()) == [(link.instance, list(range(1, WORD_MAX + 1)))]


def test_another_process_hears_nothing_of_the_one_before(reports: AnswerReports) -> None:
    assert reports.closed(TestLink(instance="first"), [1])
    again = TestLink(instance="second")
    reports.opened(again)
    assert again.heard() == []


def test_nothing_is_kept_of_a_link_without_answers(reports: AnswerReports) -> None:
    assert not reports.closed(TestLink(), [])
    assert list(reports.unheard()) == []


def test_i8_reports_are_bounded(reports: AnswerReports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_reports, "REPORTED_MAX", 3)
    link = TestLink()
    reports.lost(link, list(range(5)))
    assert reports.closed(link, [5])
    again = TestLink()
    reports.opened(again)
    assert again.heard() == [PeerLost("work", [3, 4, 5])]
