"""The whole suite in parts: nothing is left out, and no part's failure is lost."""

from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.support.side_by_side import (
    ALONE,
    BESIDE,
    FAULTS,
    NOTHING_CHOSEN,
    fault_parts,
    keeps,
    missing,
    verdict,
)


def test_every_folder_is_in_a_part(tmp_path: Path) -> None:
    assert missing(REPO / "tests") == set()
    for folder in ("integration/new", "integration/engine", "chaos"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "test_it.py").touch()
    assert missing(tmp_path) == {"integration/new/test_it.py"}


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


def test_every_fault_test_is_in_one_of_two_parts() -> None:
    one, other = map(set, fault_parts(REPO / "tests").values())
    assert not one & other
    assert "chaos/test_2101.py" in one | other
    assert len(one | other) == sum(
        len(list((REPO / "tests" / each).glob("test_*"))) for each in FAULTS
    )
