"""What others delayed: letters in `-RETRY` topics, and questions for `deliverAfter`."""

import threading
import time
from collections.abc import Mapping, Sequence

import pytest

from ackd.ports import Delay, Record
from ackd_adapters.pulsar.config import PulsarOptions
from ackd_adapters.pulsar.delays import AT_ONCE, HEADER, Delays, Questions, moment
from ackd_adapters.pulsar.letters import DELAY_MS_MAX, holds_letters, letter, topics_of
from ackd_adapters.pulsar.numbering import Position
from ackd_adapters.pulsar.rest import RestError

PUBLISHED_MS = 1_700_000_000_000
RETRY = "orders-work-RETRY"
WHEN = "2026-11-22T12:07:11.197Z"
WHEN_MS = 1_795_349_231_197


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


# --- questions


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (WHEN, WHEN_MS),
        ("2026-11-22T14:07:11.197+02:00", WHEN_MS),
        ("2026-11-22T12:07:11Z", WHEN_MS - 197),
        ("2026-11-22T12:07:11.197", 0),
        ("tomorrow", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_times_as_the_admin_interface_writes_them(text: str | None, ms: int) -> None:
    assert moment(text) == ms


class Admin:
    """Answers for each path in turn; the last answer stays. `asked` in order.

    `first`: what has to be asked before anybody is told that nobody is there.
    """

    def __init__(self, **answers: Sequence[str | RestError | None]) -> None:
        self.answers = {path: list(script) for path, script in answers.items()}
        self.asked: list[str] = []
        self.under_way = self.most = 0
        self.lock = threading.Lock()
        self.first = ""
        self.first_asked = threading.Event()

    def __call__(self, path: str) -> Mapping[str, str]:
        with self.lock:
            self.asked.append(path)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            script = self.answers.get(path, [None])
            said = script.pop(0) if len(script) > 1 else script[0]
        if path == self.first:
            self.first_asked.set()
        time.sleep(0.002)
        with self.lock:
            self.under_way -= 1
        if isinstance(said, RestError):
            assert not self.first or self.first_asked.wait(20)
            raise said
        return {} if said is None else {HEADER: said}


AWAY = RestError("nobody there", 0)


def questions(admin: Admin, wait_ms: int = 0) -> Questions:
    options = PulsarOptions(
        service_url="pulsar://a",
        admin_url="http://a",
        honor_client_delays=True,
        client_delays_wait_ms=wait_ms,
    )
    return Questions(options, admin)


def yes() -> bool:
    return True


def test_i8_each_is_asked_once_and_few_at_a_time() -> None:
    admin = Admin(p3=[WHEN], p5=["2026-11-22"], p7=[RestError("gone", 404)])
    asks = questions(admin)
    assert asks.due({offset: f"p{offset}" for offset in range(100)}, yes) == {3: WHEN_MS}
    assert sorted(admin.asked) == sorted(f"p{offset}" for offset in range(100))
    assert 1 < admin.most <= AT_ONCE
    assert asks.in_vain == ""
    asks.close()


def test_what_failed_is_asked_again_for_a_while() -> None:
    admin = Admin(a=[AWAY, RestError("no", 500), WHEN], b=[WHEN])
    asks = questions(admin, wait_ms=60_000)
    assert asks.due({1: "a", 2: "b"}, yes) == {1: WHEN_MS, 2: WHEN_MS}
    assert sorted(admin.asked) == ["a", "a", "a", "b"]
    assert asks.in_vain == ""
    asks.close()


def test_i5_nobody_is_held_up_for_ever_by_an_admin_interface_that_is_away() -> None:
    admin = Admin(a=[WHEN], **{f"p{n}": [AWAY] for n in range(50)})
    admin.first = "a"
    asks = questions(admin)
    assert asks.due({1: "a"} | {n: f"p{n}" for n in range(2, 50)}, yes) == {1: WHEN_MS}
    assert asks.in_vain == "nobody there"
    admin.asked.clear()
    # From now on one question a batch, until one is answered.
    assert asks.due({n: f"p{n}" for n in range(50)}, yes) == {}
    assert admin.asked == ["p0"]
    admin.answers = {"p1": [WHEN]}
    assert asks.due({0: "p0", 1: "p1"}, yes) == {1: WHEN_MS}
    assert asks.in_vain == ""
    asks.close()


def test_a_session_that_ends_waits_for_nothing() -> None:
    admin = Admin(a=[AWAY])
    asks = questions(admin, wait_ms=3_600_000)
    going = iter([True])
    assert asks.due({1: "a"}, lambda: next(going, False)) == {}
    assert asks.in_vain == ""
    asks.close()


# --- of a partition


def test_letters_are_not_asked_about_unless_they_say_nothing() -> None:
    admin = Admin(**{"x/ledger/7/entry/1": [WHEN], "x/ledger/7/entry/2": [WHEN]})
    asks = questions(admin)
    delays = Delays(asks, RETRY, lambda: "x")
    records = [record(0, DELAY_TIME="5"), record(1, RECONSUMETIMES="3"), record(2), record(3)]
    at = {offset: Position(7, offset, 0) for offset in range(3)}  # the last one is of a batch
    assert delays.find(records, at, yes) == {
        0: Delay(PUBLISHED_MS + 5, 0),
        1: Delay(WHEN_MS, 3),
        2: Delay(WHEN_MS, 0),
    }
    assert sorted(admin.asked) == ["x/ledger/7/entry/1", "x/ledger/7/entry/2"]
    asks.close()


@pytest.mark.parametrize("topic", ["ackd.retry.work", "a/b/ackd.dead.work", "orders-work-DLQ"])
def test_nobody_asks_about_copies_and_dead_letters(topic: str) -> None:
    assert not Delays(questions(Admin()), topic, lambda: "x").wanted


def test_without_the_setting_only_letters_are_read() -> None:
    options = PulsarOptions(service_url="pulsar://a", admin_url="http://a")
    admin = Admin(**{"x/ledger/7/entry/0": [WHEN]})
    asks = Questions(options, admin)
    assert not Delays(asks, "orders", lambda: "x").wanted
    at = {0: Position(7, 0, 0)}
    assert Delays(asks, RETRY, lambda: "x").find([record(RECONSUMETIMES="1")], at, yes) == {
        0: Delay(0, 1)
    }
    assert admin.asked == []
