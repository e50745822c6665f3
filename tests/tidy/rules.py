"""Checks of `docs/develop/rules.md`: each number that is cited is defined there, and is tested.

Tests that any page names with their files exist.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

RULES = "docs/develop/rules.md"
SUFFIXES = (".py", ".lua", ".md", ".yaml", ".tpl", ".toml", ".json", ".sh")
_CITED = re.compile(r"\b([RI])(\d{1,2})(?:-\1(\d{1,2}))?\b")
_DEFINED = re.compile(r"^## ([RI]\d{1,2}) \S", re.MULTILINE)
_TEST = re.compile(r"`((?:tests|sidecar)/[\w/]+\.py)(?:::(\w+))?`")


def cited(text: str) -> set[str]:
    """The numbers in a text; "R9-R12" cites all four."""
    found = set()
    for kind, first, last in _CITED.findall(text):
        numbers = range(int(first), int(last or first) + 1)
        found |= {f"{kind}{number}" for number in numbers}
    return found


def defined(page: str) -> list[str]:
    """The numbers that have a section, in order."""
    return _DEFINED.findall(page)


def is_test(path: str) -> bool:
    """Whether it is a test; the contract suite for adapters is one that is shipped."""
    return path.startswith(("tests/", "sidecar/tools/ackd_testing/")) and not path.startswith(
        "tests/tidy/"
    )


def complaints(repo: Path, files: Collection[Path]) -> Iterator[str]:
    """What is cited and not defined, defined and not tested, or defined twice; sections of the page
    that name no test; tests that it or another page names and that do not exist.
    """
    page = (repo / RULES).read_text()
    known = defined(page)
    yield from (f"{RULES}: {rule} twice" for rule in sorted(set(known)) if known.count(rule) > 1)
    citations = _citations(repo, files)
    for path, rules in citations.items():
        yield from (
            f"{path}: {rule} is not defined in {RULES}" for rule in sorted(rules - {*known})
        )
    tested = set().union(*(rules for path, rules in citations.items() if is_test(path)))
    yield from (f"{RULES}: no test cites {rule}" for rule in known if rule not in tested)
    yield from _without_test(page)
    for file in files:
        if file.suffix == ".md":
            yield from _not_there(repo, file.relative_to(repo).as_posix(), file.read_text())


def tests_in(text: str) -> list[tuple[str, str]]:
    """Tests that a text names: file and function, or a file alone."""
    return _TEST.findall(text)


def _citations(repo: Path, files: Iterable[Path]) -> Mapping[str, set[str]]:
    found = {}
    for path in files:
        name = path.relative_to(repo).as_posix()
        if path.suffix in SUFFIXES and name != RULES and not name.startswith("tests/tidy/"):
            found[name] = cited(path.read_text())
    return found


def _without_test(page: str) -> Iterator[str]:
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        if not tests_in(section):
            yield f"{RULES}: {section.split()[0]} names no test"


def _not_there(repo: Path, name: str, page: str) -> Iterator[str]:
    for file, test in dict.fromkeys(tests_in(page)):
        path = repo / file
        if not path.is_file():
            yield f"{name}: there is no {file}"
        elif test and not re.search(rf"\bdef {test}\(", path.read_text()):
            yield f"{name}: {file} has no {test}"
