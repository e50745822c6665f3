"""Sidecars on a broker that keeps an ack for each message: no seed breaks an invariant, equal seeds
are equal, mistakes are found (R32).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest

from ackd.core.log_generations import LogGenerations
from ackd.engine.ownership.gaps import Gaps
from ackd.engine.ownership.lost_messages import LostMessages
from ackd.engine.partition.partition import Partition
from ackd.store.places import KnownPlaces
from tests.simulation.held_run import HELD_STORIES, HeldOutcome, simulate_held

SEEDS = 3
MUTANT_SEEDS = 20
Planted = tuple[Any, str, Callable[..., Any]]


def rerun(outcome: HeldOutcome) -> str:
    """What somebody needs to see the same again."""
    return (
        f"seed {outcome.seed}: {outcome.violation}\n{outcome.tail}\n"
        f"again: python -m tests.simulation.held_run --story {outcome.story} --seed {outcome.seed}"
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("story", "found"),
    [
        # What came first as a copy, and was acked, came again at its own place after a crash.
        ("plain", [12]),
        ("blind", []),
        ("cut", []),
        ("clock", []),
        ("lost", []),
        ("filtered", []),
        ("filtered-blind", []),
        # Seed 11 loses messages where gaps are passed over that another sidecar may have had.
        ("asleep", [11]),
    ],
)
def test_i1_i2_i3_under_crashes_cut_logs_resets_and_lost_handles(
    story: str, found: list[int]
) -> None:
    """Each message is delivered until somebody acks it, to one at a time, and never again."""
    outcomes = [simulate_held(seed, story) for seed in [*range(SEEDS), *found]]
    for outcome in outcomes:
        assert outcome.violation is None, rerun(outcome)
    assert sum(each.acked for each in outcomes) > 50
    assert (story == "cut") == any(each.cuts for each in outcomes)


def test_equal_seeds_are_equal() -> None:
    first, second = (simulate_held(2, "asleep") for _ in range(2))
    assert first.digest == second.digest
    assert first.digest != simulate_held(3, "asleep").digest


def _nothing(*_: object) -> None:
    """It is left out."""


async def _nothing_later(*_: object) -> None:
    """It is left out."""


def _came(self: Gaps, partition: Partition, offsets: Iterable[int]) -> None:
    """No other sidecar is thought of."""
    _REAL_CAME(self, partition, offsets)
    if partition in self._drawn:
        self._drawn[partition].first = 0


_REAL_CAME = Gaps.came


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rule", "story", "first", "planted"),
    [
        (
            "I1",
            "cut",
            0,
            [
                (LogGenerations, "of", lambda *_: (0, False)),
                (LogGenerations, "is_usual", lambda *_: True),
            ],
        ),
        ("I", "plain", 12, [(KnownPlaces, "find_copied", _nothing)]),
        ("I", "plain", 0, [(KnownPlaces, "find", _nothing)]),
        ("I1", "lost", 0, [(LostMessages, "look", _nothing_later)]),
        ("I1", "asleep", 11, [(Gaps, "came", _came)]),
    ],
    ids=[
        "a used offset is the old message",
        "who came first as a copy is not known where it is stored",
        "a copy is a new message",
        "what the broker lost is not looked for",
        "a gap is passed over that another sidecar may have had",
    ],
)
def test_a_mistake_is_found(rule: str, story: str, first: int, planted: list[Planted]) -> None:
    """One of so many seeds breaks its rule."""
    for seed in range(first, first + MUTANT_SEEDS):
        with ExitStack() as stack:
            for where, name, instead in planted:
                stack.enter_context(patch.object(where, name, instead))
            outcome = simulate_held(seed, story)
        if outcome.violation is not None:
            assert outcome.violation.startswith(rule), rerun(outcome)
            return
    raise AssertionError("it is not found")


def test_the_stories_are_all_run() -> None:
    (mark,) = (
        each
        for each in test_i1_i2_i3_under_crashes_cut_logs_resets_and_lost_handles.pytestmark  # type: ignore[attr-defined]
        if each.name == "parametrize"
    )
    assert {name for name, _ in mark.args[1]} == HELD_STORIES.keys()
