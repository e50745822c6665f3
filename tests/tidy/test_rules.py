"""Rules and invariants are defined where they can be read, and each is cited by a test."""

from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.tidy import rules
from tests.tidy.words import tracked_files

INVARIANTS = [f"I{number}" for number in range(1, 9)]
RULES = [f"R{number}" for number in range(1, 35)]


def test_every_rule_that_is_cited_is_defined_and_tested() -> None:
    found = list(rules.complaints(REPO, tracked_files(REPO)))
    assert not found, "\n".join(found)


def test_all_are_there_in_their_order() -> None:
    assert rules.defined((REPO / rules.RULES).read_text()) == [*INVARIANTS, *RULES]


PAGE = "## R1 One\n\nShown by `tests/test_a.py::test_a`.\n"
TEST = '"""R1."""\n\ndef test_a() -> None: ...\n'


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, ""),
        ({"docs/other.md": "see R2"}, "docs/other.md: R2 is not defined"),
        ({"sidecar/a.lua": "-- R1-R3"}, "sidecar/a.lua: R3 is not defined"),
        ({"tests/test_a.py": "def test_a(): ..."}, "no test cites R1"),
        ({"tests/test_a.py": '"""R1."""'}, "has no test_a"),
        ({rules.RULES: PAGE + PAGE}, "R1 twice"),
        ({rules.RULES: PAGE.replace("test_a.py", "gone.py")}, "there is no tests/gone.py"),
        ({rules.RULES: "## R1 One\n\nTrust me.\n"}, "R1 names no test"),
        ({"docs/brokers/compared.md": "`tests/test_a.py::test_a`"}, ""),
        ({"docs/other.md": "`tests/test_a.py::test_b`"}, "other.md: tests/test_a.py has no test_b"),
        ({"docs/other.md": "`tests/test_b.py::test_a`"}, "other.md: there is no tests/test_b.py"),
    ],
)
def test_a_planted_mistake_is_found(files: dict[str, str], complaint: str, tmp_path: Path) -> None:
    for name, text in {rules.RULES: PAGE, "tests/test_a.py": TEST, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = "\n".join(rules.complaints(tmp_path, sorted(tmp_path.rglob("*.*"))))
    assert complaint in found
    assert bool(found) == bool(complaint)
