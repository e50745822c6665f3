"""The judge of the order is silent about a queue that keeps it, and finds what breaks it (I6)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ackd_torture.checker import BROKEN, check
from ackd_torture.history import EventKind
from tests.unit.torture.model import SUB, Model
from tests.unit.torture.test_checker import History


@given(seed=st.integers(0, 2**32), clients=st.integers(1, 8), keys=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_a_queue_that_keeps_the_order_is_never_blamed(seed: int, clients: int, keys: int) -> None:
    verdict = check(Model(seed, clients=clients, keys=keys, messages=25).run())
    assert not any(verdict.count(word) for word in BROKEN if word != "lost"), verdict.findings
    assert verdict.ordering_keys == min(keys, verdict.delivered) or verdict.ordering_keys < keys


def test_a_planted_inversion_is_found() -> None:
    found = planted = 0
    for seed in range(40):
        model = Model(seed, "disorder", keys=4)
        verdict = check(model.run())
        said = {word for word in BROKEN if verdict.count(word)} - {"lost", "stranded"}
        assert said <= {"out_of_order"}, (seed, verdict.findings)
        assert model.planted or not said
        planted += model.planted > 0
        found += "out_of_order" in said
    assert planted >= 20
    assert found >= planted * 0.9, (found, planted)


class Two:
    """Two messages of one key (or of two), the later one handed out at 50 ms."""

    def __init__(self, order: str = "key", keys: tuple[str, str] = ("k", "k")) -> None:
        self.history = History().at(0, EventKind.ORDERED, note=order)
        self._deliver("a", 5, 10, f"{SUB}/0/1", keys[0], "l1")
        self._deliver("b", 40, 50, f"{SUB}/0/2", keys[1], "l2")

    def _deliver(
        self, client: str, asked: float, read: float, place: str, key: str, lease: str
    ) -> None:
        call = len(self.history.events)
        self.history.at(asked, EventKind.ASK, client=client, call=call)
        told: dict[str, str | float | bool] = {
            "id": place,
            "msg": place,
            "key": key,
            "lease": lease,
            "attempt": 1,
        }
        self.history.at(read, EventKind.DELIVERED, client=client, call=call, attempts_max=2, **told)

    def inversions(self) -> int:
        verdict = self.history.verdict()
        return verdict.count("out_of_order")


def test_the_ack_that_was_sent_before_the_later_one_came_clears_it() -> None:
    """Whether it was applied in time nobody can tell, unless it was answered `lost`."""
    run = Two()
    run.history.settled(49, 60, "l1", "acked")
    assert run.inversions() == 0
    run = Two()
    run.history.settled(51, 60, "l1", "acked")
    assert run.inversions() == 1
    run = Two()
    run.history.settled(49, 60, "l1", "lost").settled(70, 71, "l1", "acked")
    assert run.inversions() == 1
    run = Two()
    run.history.at(49, EventKind.SETTLE, call=99, lease="l1", do="ack")
    assert run.inversions() == 0


@pytest.mark.parametrize(
    ("order", "keys", "expected"),
    [
        ("key", ("k", "k"), 1),
        ("key", ("k", "other"), 0),
        ("key", ("", ""), 0),
        ("partition", ("k", "other"), 1),
    ],
)
def test_what_is_in_one_order(order: str, keys: tuple[str, str], expected: int) -> None:
    assert Two(order, keys).inversions() == expected


def test_a_retry_that_waits_and_a_dead_letter() -> None:
    run = Two()
    run.history.settled(20, 21, "l1", "retrying", do="retry")
    assert run.inversions() == 1
    run = Two()
    run.history.settled(20, 21, "l1", "dead", do="dead")
    assert run.inversions() == 0


def test_attempts_that_are_used_up_end_a_message_without_a_word() -> None:
    run = Two()
    run.history.events = [
        each if each.lease != "l1" else msgspec.structs.replace(each, attempt=2)
        for each in run.history.events
    ]
    run.history.settled(20, 21, "l1", "retrying", do="retry")
    assert run.inversions() == 0
