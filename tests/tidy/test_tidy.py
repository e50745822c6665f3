"""The repository keeps its own rules. What each check looks for stands in the check's docstring."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points

import pytest

from tests.support.paths import REPO
from tests.tidy import checks
from tests.tidy.closed_core import ledger_is_closed
from tests.tidy.dependence import circles, dependence
from tests.tidy.feeding import unfed_metrics
from tests.tidy.lua import lua_bare_index, lua_function_size
from tests.tidy.sources import Source, read_sources
from tests.tidy.words import forbidden_words, tracked_files

ARCHITECTURE_LINES_MAX = 150
Check = Callable[[Iterable[Source]], Iterator[str]]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    """Every Python file of the product and of the tests."""
    return read_sources(REPO)


@pytest.mark.parametrize(
    "check",
    [
        dependence,
        circles,
        checks.file_size,
        checks.function_size,
        checks.annotated,
        checks.module_docstring,
        checks.any_in_ports,
        checks.class_names,
        checks.class_size,
        unfed_metrics,
        ledger_is_closed,
    ],
    ids=lambda check: check.__name__,
)
def test_sources(check: Check, sources: list[Source]) -> None:
    complaints = list(check(sources))
    assert not complaints, "\n".join(complaints)


def read_scripts() -> list[tuple[str, str]]:
    """The store's scripts: path and text."""
    found = sorted((REPO / "sidecar/ackd/store").glob("*.lua"))
    return [(str(path.relative_to(REPO)), path.read_text()) for path in found]


@pytest.mark.parametrize("check", [lua_function_size, lua_bare_index])
def test_scripts(check: Callable[[Iterable[tuple[str, str]]], Iterator[str]]) -> None:
    complaints = list(check(read_scripts()))
    assert not complaints, "\n".join(complaints)


def declared_entry_points() -> dict[str, str]:
    """Name -> target of every script and adapter in pyproject.toml."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    return {**project["scripts"], **project["entry-points"]["ackd.adapters"]}


def test_no_dead_module(sources: list[Source]) -> None:
    named = re.findall(r"\btests(?:\.\w+)+", (REPO / "Makefile").read_text())
    points = [*declared_entry_points().values(), *named]
    complaints = list(checks.dead_modules(sources, points))
    assert not complaints, "\n".join(complaints)


def test_entry_points_lead_somewhere() -> None:
    for name in declared_entry_points():
        found = [*entry_points(group="ackd.adapters", name=name)]
        found += entry_points(group="console_scripts", name=name)
        assert found, f"{name} is declared but not installed: make .venv"
        assert found[0].load() is not None


def test_no_forbidden_words() -> None:
    complaints = list(forbidden_words(tracked_files(REPO)))
    assert not complaints, "\n".join(complaints)


def test_architecture_stays_a_map() -> None:
    lines = (REPO / "ARCHITECTURE.md").read_text().splitlines()
    assert len(lines) <= ARCHITECTURE_LINES_MAX


def test_locks_name_no_index() -> None:
    for name in ("run.lock", "dev.lock"):
        text = (REPO / "requirements" / name).read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "--index-url" not in text
