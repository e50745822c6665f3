"""ARCHITECTURE.md is a map, and true."""

from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.tidy.architecture import folders, rows, section, unknown_files, unknown_steps
from tests.tidy.dependence import ENGINE_PARTS
from tests.tidy.sources import read_sources
from tests.tidy.test_checks_can_fail import build

PAGE = (REPO / "ARCHITECTURE.md").read_text()
LINES_MAX = 150
PARTS = section(PAGE, "The map of `ackd` and of its tools")
ROOMS = section(PAGE, "The rooms of the engine")


def test_the_page_stays_a_map() -> None:
    assert len(PAGE.splitlines()) <= LINES_MAX


def test_every_part_of_ackd_and_every_room_of_the_engine_has_a_row() -> None:
    root = REPO / "sidecar" / "ackd"
    parts = [each for each in rows(PARTS) if not each.startswith(("tools/", "ackd_"))]
    assert {each.partition("/")[0] for each in parts} == folders(root)
    assert set(rows(ROOMS)) == folders(root / "engine")
    assert len(rows(ROOMS)) == len(folders(root / "engine"))


def test_rooms_stand_below_those_that_they_know() -> None:
    """All but one, which the page names."""
    order = rows(ROOMS)
    known = {
        room.removeprefix("ackd.engine."): {other.split(".")[2] for other in others}
        for room, others in ENGINE_PARTS.items()
        if others != ("ackd.engine",)
    }
    above = {
        (room, other)
        for room, others in known.items()
        for other in others
        if order.index(other) > order.index(room)
    }
    assert above == {("publishing", "retry")}


def test_a_missing_row_is_found(tmp_path: Path) -> None:
    page = "# A\n\n## Map\n\n| part | |\n|---|---|\n| `a/`, `b/` | `c/` |\n| `d.py` | |\n\n## B\n"
    assert rows(section(page, "Map")) == ["a", "b"]
    with pytest.raises(ValueError, match="no section"):
        section(page, "Walk")
    for name in ("a", "e"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    assert folders(tmp_path) - set(rows(page)) == {"e"}


def test_a_wrong_step_of_the_walk_is_found(tmp_path: Path) -> None:
    old = "class Old:\n    def go(self): ...\n    def _on(self): ...\n\n\ndef serve(): ...\n"
    other = "class Other:\n    def _off(self): ...\n"
    house = build(tmp_path, ("sidecar/ackd/core/a.py", old))
    build(tmp_path, ("sidecar/ackd/http/c.py", other))
    sources = read_sources(house)
    right = (
        "`Old.go`, `_on` (`core/a.py`), `serve`\n(`a.py`), `Other`, `_off`, `core/`, `x.lua`",
        "`serve` (`core/`) gives `Old` (in `core/b.py`, once)",
    )
    wrong = {
        "`Old.gone`": "Old.gone",
        "`core/b.py`": "core/b.py",
        "`y.lua`": "y.lua",
        "`peer/`": "peer/",
        "`Gone`": "Gone",
        "`Old.go`, `_off`": "_off",
        "`Old`, `Other`, `_on`": "_on",
        "`_on`": "_on",
        "`stop`": "stop",
        "`Old.go` (`http/c.py`)": "Old.go (http/c.py)",
        "`serve` (`http/`)": "serve (http/)",
        "own `words`": "words",
    }
    scripts = ["sidecar/ackd/store/x.lua"]
    assert list(unknown_steps(right[0], sources, scripts)) == []
    assert list(unknown_steps(right[1], sources, scripts)) == ["core/b.py"]
    for walk, found in wrong.items():
        assert list(unknown_steps(walk, sources, scripts)) == [found]
    assert list(unknown_files("`a.py`, `core/a.py`, `core/c.py`", sources)) == ["core/c.py"]
