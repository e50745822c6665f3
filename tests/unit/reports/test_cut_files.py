"""Gzip files that end in the middle, by the last of their members."""

import gzip
import random
from pathlib import Path

import pytest

from ackd_reports.frames import storage

SEED = 2041
RNG = random.Random(SEED)
MEMBERS = [gzip.compress(RNG.randbytes(RNG.randrange(1, 3_000))) for _ in range(60)]


def judged(folder: Path, data: bytes) -> tuple[bool, bool]:
    """Whether such a file is cut by its end, and by all of it."""
    path = folder / "a.jsonl.gz"
    path.write_bytes(data)
    return storage.is_cut(str(path)), storage.is_damaged(f"file:{path}")


@pytest.mark.parametrize("members", [MEMBERS, [gzip.compress(RNG.randbytes(100_000))]])
def test_wherever_it_was_cut_its_end_tells(tmp_path: Path, members: list[bytes]) -> None:
    """Between two members it is whole: so many lines, and then none."""
    whole = b"".join(members)
    ends = {0, *(sum(map(len, members[:n])) for n in range(1, len(members) + 1))}
    cuts = {RNG.randrange(len(whole)) for _ in range(150)} | ends
    near = {end + more for end in ends for more in (-9, -1, 1, 2, 3, 9)}
    for at in cuts | {each for each in near if 0 <= each <= len(whole)}:
        assert judged(tmp_path, whole[:at]) == (at not in ends, at not in ends), (SEED, at)


def test_what_is_wrong_before_its_end_only_the_whole_of_it_tells(tmp_path: Path) -> None:
    assert judged(tmp_path, MEMBERS[0] + MEMBERS[1][:-9] + MEMBERS[2]) == (False, True)


def test_a_last_member_that_unpacks_to_very_much_is_whole(tmp_path: Path) -> None:
    data = MEMBERS[0] + gzip.compress(bytes(30_000_000))
    assert judged(tmp_path, data) == (False, False)


def test_other_files_are_not_looked_through(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(b"x")
    assert not storage.is_cut(str(tmp_path / "a.jsonl.zst"))
    assert not storage.is_cut("s3a://bucket/a.jsonl.gz")
