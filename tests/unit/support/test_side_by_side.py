"""The whole suite in parts: nothing is left out, and no part's failure is lost."""

import pytest

from tests.support.k8s import run as kubernetes
from tests.support.lanes import known
from tests.support.paths import REPO
from tests.support.side_by_side import (
    ALONE,
    BESIDE,
    ELSEWHERE,
    FAULT_LANES,
    FAULTS,
    HUNGRY,
    HUNGRY_LANES,
    LANES,
    NOTHING_CHOSEN,
    by_the_clock,
    keeps,
    planned,
    verdict,
)


def test_every_file_is_in_one_lane() -> None:
    found = planned(REPO / "tests", known()).files()
    there = {str(path.relative_to(REPO / "tests")) for path in (REPO / "tests").rglob("test_*.py")}
    assert len(found) == len(set(found))
    assert set(found) == {file for file in there if not file.startswith(ELSEWHERE)}


def test_fault_tests_have_a_turn_of_their_own() -> None:
    plan = planned(REPO / "tests", {})
    others, faults = plan.turns
    assert len(others) == LANES
    assert len(faults) == FAULT_LANES
    chosen = {file.split("/")[0] for lane in faults.values() for file in lane}
    assert chosen == set(FAULTS)


@pytest.mark.parametrize("name", HUNGRY)
def test_what_computes_runs_beside_all_turns(name: str) -> None:
    plan = planned(REPO / "tests", {})
    assert len(plan.hungry) == HUNGRY_LANES
    hungry = [file for lane in plan.hungry.values() for file in lane]
    assert any(file.startswith(name) for file in hungry), "no such file any more"
    turns = [file for turn in plan.turns for lane in turn.values() for file in lane]
    assert not any(file.startswith(name) for file in turns)


def test_what_may_judge_by_the_clock_is_looked_for_in_every_file() -> None:
    """A test that is marked and not found here would run nowhere."""
    files = by_the_clock(REPO / "tests", ["chaos/test_waiting.py", "tidy/test_tidy.py"])
    assert files == ["chaos/test_waiting.py"]


def test_every_file_on_kubernetes_is_in_one_lane() -> None:
    found = [file for lane in kubernetes.lanes().values() for file in lane]
    there = [f"k8s/{path.name}" for path in (REPO / "tests" / "k8s").glob("test_*.py")]
    assert sorted(found) == sorted(there)
    assert all(kubernetes.lanes().values())


@pytest.mark.parametrize(
    ("codes", "one"),
    [
        ([0, 0, 0], 0),
        ([0, 1, 0], 1),
        ([NOTHING_CHOSEN, 0, NOTHING_CHOSEN], 0),
        ([NOTHING_CHOSEN, NOTHING_CHOSEN], NOTHING_CHOSEN),
        ([NOTHING_CHOSEN, 2, 0], 2),
    ],
)
def test_one_status_for_all(codes: list[int], one: int) -> None:
    assert verdict(codes) == one


def test_what_judges_by_the_clock_has_a_turn_of_its_own() -> None:
    assert [keeps(turn, alone=True) for turn in (None, BESIDE, ALONE)] == [True, False, True]
    assert [keeps(turn, alone=False) for turn in (None, BESIDE, ALONE)] == [True, True, False]
