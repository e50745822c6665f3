"""Answers on their way: known until they are taken, end, or lose whom they were for (I8, R21)."""

from __future__ import annotations

import pytest

from ackd.engine.peers import sent_answers
from ackd.engine.peers.sent_answers import AnswerKey, SentAnswer, SentAnswers


def answer(*leases: str, until_ms: int = 1_000, name: str = "pod-2") -> SentAnswer:
    return SentAnswer(name, leases, until_ms)


def key(number: int, instance: str = "pod-2-1") -> AnswerKey:
    return AnswerKey(instance, number)


def test_an_answer_is_taken_once() -> None:
    sent, one = SentAnswers(), answer("a", "b")
    sent.add(key(1), one)
    assert key(1) in sent
    assert key(1, "pod-2-2") not in sent
    assert sent.take(key(2)) is None
    assert sent.take(key(1)) is one
    assert sent.take(key(1)) is None
    assert (len(sent), key(1) in sent) == (0, False)


def test_answers_are_forgotten_when_their_leases_end_whatever_their_order() -> None:
    sent = SentAnswers()
    for number, until_ms in enumerate((3_000, 1_000, 2_000)):
        sent.add(key(number), answer("a", until_ms=until_ms))
    sent.forget_ended(999)
    assert len(sent) == 3
    sent.forget_ended(2_000)
    assert [number for number in range(3) if key(number) in sent] == [0]
    sent.forget_ended(3_000)
    assert len(sent) == 0


def test_i8_beyond_so_many_leases_the_first_answers_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sent_answers, "LEASES_MAX", 4)
    sent = SentAnswers()
    sent.add(key(1), answer("a", "b"))
    sent.add(key(2), answer("c", "d"))
    assert len(sent) == 2
    sent.take(key(2))  # its leases count no more
    sent.add(key(3), answer("e", "f"))
    assert len(sent) == 2
    sent.add(key(4), answer("g"))
    assert [number for number in (1, 3, 4) if key(number) in sent] == [3, 4]


def test_what_an_earlier_process_of_a_sidecar_was_sent_is_forgotten() -> None:
    sent = SentAnswers()
    sent.add(key(1, "pod-2-1"), answer("a"))
    sent.add(key(1, "pod-2-2"), answer("b"))
    sent.add(key(1, "pod-3-1"), answer("c", name="pod-3"))
    sent.forget_others("pod-2", "pod-2-2")
    assert key(1, "pod-2-1") not in sent
    assert key(1, "pod-2-2") in sent
    assert key(1, "pod-3-1") in sent


def test_i8_answers_that_were_taken_leave_nothing_behind() -> None:
    """Ends of answers are looked up in a heap, which would grow with each answer otherwise."""
    sent = SentAnswers()
    sent.add(key(0), answer("a", until_ms=5_000))
    for number in range(1, 1_000):
        sent.add(key(number), answer("a", until_ms=10_000))
        sent.take(key(number))
    assert len(sent._ends) <= 2 * len(sent) + sent_answers.STALE_MIN
    sent.forget_ended(5_000)
    assert len(sent) == 0


def test_a_number_that_is_used_again_ends_with_its_last_answer_at_the_earliest() -> None:
    sent = SentAnswers()
    sent.add(key(1), answer("a", until_ms=2_000))
    sent.take(key(1))
    sent.add(key(1), answer("b", until_ms=2_000))
    sent.forget_ended(1_999)
    assert key(1) in sent
    sent.forget_ended(2_000)
    assert key(1) not in sent
