"""What others delayed: letters in `-RETRY` topics, and metadata for `deliverAfter`."""

import time
from collections.abc import Callable
from typing import cast

import pytest

from ackd.errors import BrokerError
from ackd.ports import Delay, Record
from ackd_adapters.pulsar.config import PulsarOptions
from ackd_adapters.pulsar.delays import Alone, Delays
from ackd_adapters.pulsar.entries import EntryFollower
from ackd_adapters.pulsar.heads import Place
from ackd_adapters.pulsar.letters import DELAY_MS_MAX, holds_letters, letter, topics_of
from ackd_adapters.pulsar.wire import ClusterAccess

PUBLISHED_MS = 1_700_000_000_000
RETRY = "orders-work-RETRY"
DUE_MS = time.time_ns() // 1_000_000 + 3_600_000


def record(offset: int = 0, /, **properties: str) -> Record:
    headers = tuple((name, text.encode()) for name, text in properties.items())
    return Record(offset, None, b"", headers, PUBLISHED_MS)


# --- letters


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"DELAY_TIME": "1500", "RECONSUMETIMES": "2"}, Delay(PUBLISHED_MS + 1500, 2)),
        ({"DELAY_TIME": "0", "RECONSUMETIMES": "1"}, Delay(0, 1)),
        ({"DELAY_TIME": "70"}, Delay(PUBLISHED_MS + 70, 0)),
        ({"RECONSUMETIMES": "3"}, Delay(0, 3)),
        ({"DELAY_TIME": "soon", "RECONSUMETIMES": "often"}, None),
        ({"DELAY_TIME": "-5", "RECONSUMETIMES": "-1"}, None),
        ({"DELAY_TIME": "", "RECONSUMETIMES": "1.5"}, None),
        ({"DELAY_TIME": "9" * 40, "RECONSUMETIMES": "9" * 40}, None),
        ({"DELAY_TIME": "٣", "RECONSUMETIMES": "²"}, None),
        ({"REAL_TOPIC": "orders"}, None),
    ],
)
def test_what_a_letter_says(properties: dict[str, str], expected: Delay | None) -> None:
    assert letter(record(**properties)) == expected


def test_i8_a_huge_delay_is_bounded() -> None:
    found = letter(record(DELAY_TIME="9" * 18))
    assert found is not None
    assert PUBLISHED_MS < found.due_ms <= time.time_ns() // 1_000_000 + DELAY_MS_MAX
    absent = letter(Record(0, None, b"", (("DELAY_TIME", None),), PUBLISHED_MS))
    assert absent is None


def test_which_topics_hold_letters() -> None:
    assert holds_letters(RETRY)
    assert holds_letters("a/b/work-RETRY")
    assert not holds_letters("orders")
    assert not holds_letters("ackd.retry.g-RETRY")
    assert topics_of(["orders", "a/b/c", "orders-DLQ", RETRY, "ackd.retry.work"], "work") == [
        "work-RETRY",
        "a/b/c-work-RETRY",
        "a/b/work-RETRY",
    ]


# --- metadata


class Log(EntryFollower):
    """Answers in turn; the last answer stays. `asked`: the entries of each question."""

    def __init__(self, *script: dict[int, int] | str) -> None:
        super().__init__(cast("ClusterAccess", None), "t")
        self.script = list(script)
        self.asked: list[tuple[int, int]] = []

    def due(
        self, first: Place, last: Place, until: float, going: Callable[[], bool]
    ) -> dict[Place, int]:
        self.asked.append((first[1], last[1]))
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, str):
            raise BrokerError(said)
        return {(7, entry): due_ms for entry, due_ms in said.items()}


def delays(log: Log, wait_ms: int = 0, topic: str = "orders", *, honor: bool = True) -> Delays:
    options = PulsarOptions(
        service_url="pulsar://a",
        admin_url="http://a",
        honor_client_delays=honor,
        client_delays_wait_ms=wait_ms,
    )
    return Delays(options, topic, lambda: log)


def at(*entries: int) -> list[Alone]:
    """Entries whose offsets are ten times their number."""
    return [(entry * 10, (7, entry)) for entry in entries]


def yes() -> bool:
    return True


def test_one_question_for_all_and_what_is_due_already_has_no_delay() -> None:
    log = Log({3: DUE_MS, 5: PUBLISHED_MS})
    asks = delays(log)
    assert asks.find([], at(*range(100)), yes) == {30: Delay(DUE_MS, 0)}
    assert log.asked == [(0, 99)]
    assert asks.find([], [], yes) == {}
    assert log.asked == [(0, 99)]
    assert asks.in_vain == ""


def test_the_delay_of_what_is_in_a_batch_among_them_is_not_kept() -> None:
    """Clients put nothing delayed into a batch; entry 3 is one."""
    asks = delays(Log({3: DUE_MS, 4: DUE_MS}))
    assert asks.find([], at(2, 4), yes) == {40: Delay(DUE_MS, 0)}


def test_what_failed_is_asked_again_for_a_while() -> None:
    log = Log("away", "away", {1: DUE_MS})
    asks = delays(log, wait_ms=60_000)
    assert asks.find([], at(1, 2), yes) == {10: Delay(DUE_MS, 0)}
    assert log.asked == [(1, 2)] * 3
    assert asks.in_vain == ""


def test_i5_nobody_is_held_up_for_ever_by_a_broker_that_does_not_tell() -> None:
    log = Log("away")
    asks = delays(log, wait_ms=300)
    assert asks.find([], at(1), yes) == {}
    assert asks.in_vain == "away"
    assert len(log.asked) > 1
    log.asked.clear()
    # From now on one question a batch, until one is answered.
    assert asks.find([], at(2), yes) == {}
    assert log.asked == [(2, 2)]
    log.script = [{3: DUE_MS}]
    assert asks.find([], at(3), yes) == {30: Delay(DUE_MS, 0)}
    assert asks.in_vain == ""


def test_a_session_that_ends_waits_for_nothing() -> None:
    asks = delays(Log("away"), wait_ms=3_600_000)
    assert asks.find([], at(1), lambda: False) == {}
    assert asks.in_vain == ""


def test_i8_a_delay_in_metadata_is_bounded() -> None:
    found = delays(Log({1: 1 << 62})).find([], at(1), yes)
    assert found[10].due_ms <= time.time_ns() // 1_000_000 + DELAY_MS_MAX


def test_letters_are_not_asked_about_unless_they_say_nothing() -> None:
    log = Log({1: DUE_MS, 2: DUE_MS})
    asks = delays(log, topic=RETRY)
    records = [record(0, DELAY_TIME="5"), record(10, RECONSUMETIMES="3"), record(20), record(30)]
    # The last one is of a batch.
    assert asks.find(records, at(0, 1, 2), yes) == {
        0: Delay(PUBLISHED_MS + 5, 0),
        10: Delay(DUE_MS, 3),
        20: Delay(DUE_MS, 0),
    }
    assert log.asked == [(1, 2)]


@pytest.mark.parametrize("topic", ["ackd.retry.work", "a/b/ackd.dead.work", "orders-work-DLQ"])
def test_nobody_asks_about_copies_and_dead_letters(topic: str) -> None:
    assert not delays(Log({}), topic=topic).wanted


def test_without_the_setting_only_letters_are_read() -> None:
    log = Log({0: DUE_MS})
    assert not delays(log, honor=False).wanted
    letters = delays(log, topic=RETRY, honor=False)
    assert letters.find([record(RECONSUMETIMES="1")], at(0), yes) == {0: Delay(0, 1)}
    assert log.asked == []
