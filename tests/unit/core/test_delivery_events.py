"""What a record keeps of the deliveries of a message, and what people see of it."""

from ackd.api.past_deliveries import NO_ANSWER, OPEN
from ackd.core.record.delivery_events import (
    EVENTS_MAX,
    HISTORY_BYTES_MAX,
    HOLDER_BYTES_MAX,
    REASON_BYTES_MAX,
    DeliveryEvent,
    events,
    with_event,
)
from ackd.core.record.protocol import MessageTexts
from ackd.core.record.transitions import Outcome
from ackd.engine.partition.histories import (
    HEADER_BYTES_MAX,
    history_header,
    holder_of,
    past_deliveries,
    read_history,
)


def given(fence: int, holder: bytes = b"one", attempt: int = 1) -> DeliveryEvent:
    return DeliveryEvent(Outcome.GRANTED, attempt, fence * 10, fence, holder)


def ended(outcome: Outcome, fence: int, reason: bytes = b"", attempt: int = 1) -> DeliveryEvent:
    return DeliveryEvent(outcome, attempt, fence * 10 + 5, fence, b"who settled", reason)


def history(*told: DeliveryEvent) -> bytes:
    found = b""
    for each in told:
        found = with_event(found, each)
    return found


def test_events_come_back_the_newest_first() -> None:
    told = [given(7), ended(Outcome.RETRYING, 7, b"no disk"), given(8, b"two", 2)]
    assert list(events(history(*told))) == told[::-1]


def test_a_repeat_adds_nothing() -> None:
    assert len(list(events(history(given(7), given(7))))) == 1
    assert len(list(events(history(given(7), given(8))))) == 2


def test_i8_events_texts_and_bytes_are_bounded_and_the_newest_stay() -> None:
    many = history(*(given(n, b"") for n in range(1, 100)))
    assert [each.fence for each in events(many)] == list(range(99, 99 - EVENTS_MAX, -1))
    long = history(
        *(ended(Outcome.DEAD, n, b"x" * 999)._replace(holder=b"y" * 999) for n in range(1, 40))
    )
    assert len(long) <= HISTORY_BYTES_MAX
    newest = next(events(long))
    assert (newest.fence, len(newest.holder)) == (39, HOLDER_BYTES_MAX)
    assert len(newest.reason) == REASON_BYTES_MAX


def test_each_delivery_has_its_end() -> None:
    found = past_deliveries(
        history(
            ended(Outcome.RETRYING, 1, b"no disk"),
            given(2, b"two", 2),
            given(3, b"three", 3),
            ended(Outcome.RELEASED, 3, attempt=3),
            given(4, b"four", 3),
        ),
        leased=True,
    )
    assert [(each.attempt, each.holder, each.end) for each in found] == [
        (1, "who settled", "retrying"),
        (2, "two", NO_ANSWER),
        (3, "three", "released"),
        (3, "four", OPEN),
    ]
    assert [(each.at_ms, each.ended_ms) for each in found] == [
        (None, 15),
        (20, None),
        (30, 35),
        (40, None),
    ]
    assert found[0].reason == "no disk"


def test_who_holds_the_lease_is_who_got_the_newest_one() -> None:
    texts = MessageTexts(history=history(given(7, b"one"), given(8, b"two")))
    assert (holder_of(texts, 8), holder_of(texts, 7), holder_of(texts)) == ("two", "", "two")
    assert holder_of(MessageTexts(history=history(given(7), ended(Outcome.RETRYING, 7)))) == ""
    assert (holder_of(None), holder_of(MessageTexts())) == ("", "")


def test_a_dead_letter_carries_it_and_nothing_that_others_wrote() -> None:
    told = history(given(7), ended(Outcome.DEAD, 7, b"no shop"))
    assert read_history(history_header(told)) == past_deliveries(told)
    for wrong in (
        b"",
        b"{}",
        b"[1]",
        b'[{"attempt":"x"}]',
        b"\xff",
        b"[]" + b" " * HEADER_BYTES_MAX,
    ):
        assert read_history(wrong) == []
    long = history(*(ended(Outcome.RETRYING, n, b"\\" * 200) for n in range(1, 40)))
    header = history_header(long)
    assert len(header) <= HEADER_BYTES_MAX
    assert read_history(header)[-1] == past_deliveries(long)[-1]
