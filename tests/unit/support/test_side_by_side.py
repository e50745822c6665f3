"""The whole suite in parts: nothing is left out, and no part's failure is lost."""

from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.support.side_by_side import ALONE, BESIDE, NOTHING_CHOSEN, keeps, missing, verdict


def test_every_folder_is_in_a_part(tmp_path: Path) -> None:
    assert missing(REPO / "tests") == set()
    new = tmp_path / "new" / "deeper"
    new.mkdir(parents=True)
    (new / "test_it.py").touch()
    assert missing(tmp_path) == {"new"}


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


@pytest.mark.parametrize(
    ("folder", "alone", "turns"),
    [
        ("unit", False, [True, True, False]),
        ("unit", True, [True, False, True]),
        ("chaos", False, [True, False, True]),
        ("e2e", True, [True, False, True]),
    ],
)
def test_what_judges_by_the_clock_has_a_turn_of_its_own(
    folder: str, *, alone: bool, turns: list[bool]
) -> None:
    test = REPO / "tests" / folder / "test_it.py"
    assert [keeps(turn, test, alone=alone) for turn in (None, BESIDE, ALONE)] == turns
