"""What counts as little to read."""

from pathlib import Path

import pytest

from ackd_reports.effort import LITTLE_BYTES, PACKED, is_little


def sparse(path: Path, size: int) -> Path:
    """A file that takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.truncate(size)
    return path


def test_files_and_folders_add_up(tmp_path: Path) -> None:
    half = LITTLE_BYTES // 2
    one = sparse(tmp_path / "traces" / "a.jsonl", half)
    two = sparse(tmp_path / "lake" / "date=2026-11-21" / "part", half)
    assert is_little([str(one), str(tmp_path / "lake")])
    sparse(two, half + 1)
    assert not is_little([f"file:{one}", str(tmp_path / "lake")])


@pytest.mark.parametrize("ending", PACKED)
def test_packed_files_are_more_than_they_look(tmp_path: Path, ending: str) -> None:
    assert is_little([str(sparse(tmp_path / f"a{ending}", LITTLE_BYTES // PACKED[ending]))])
    assert not is_little([str(sparse(tmp_path / f"b{ending}", LITTLE_BYTES // PACKED[ending] + 1))])


def test_what_is_elsewhere_may_be_much_and_what_is_nowhere_is_nothing(tmp_path: Path) -> None:
    assert not is_little(["s3a://traces"])
    assert is_little([str(tmp_path / "none")])
