"""The repository keeps its own rules. What each check looks for stands in the check's docstring."""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest

from ackd import __version__
from ackd.cli.main import COMMANDS, ENTRY_POINTS
from tests.fuzz import TARGETS
from tests.support.paths import REPO
from tests.tidy import checks
from tests.tidy.architecture import section, unknown_files, unknown_steps
from tests.tidy.class_names import class_names, class_names_needlessly_shared
from tests.tidy.closed_core import ledger_is_closed
from tests.tidy.dependence import circles, dependence, package_circles
from tests.tidy.engine_tests import engine_tests
from tests.tidy.feeding import unfed_metrics
from tests.tidy.file_names import file_names, file_names_needlessly_shared
from tests.tidy.foreign_writes import foreign_writes, foreign_writes_needlessly_open
from tests.tidy.inheritance import inheritance, inheritance_needlessly_named
from tests.tidy.lua import lua_bare_index, lua_function_size
from tests.tidy.old_words import lua_old_words, old_words
from tests.tidy.reach_throughs import reach_throughs, reach_throughs_needlessly_open
from tests.tidy.rooms import rooms
from tests.tidy.sources import Source, read_sources
from tests.tidy.verb_lists import verb_lists
from tests.tidy.vital_tasks import vital_tasks
from tests.tidy.words import forbidden_words, tracked_files

TOOLS = ("demo", "testing", "top", "torture")
"""Extras that bring `ackd-tools`."""
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
        package_circles,
        checks.file_size,
        checks.function_size,
        checks.annotated,
        checks.module_docstring,
        checks.any_in_ports,
        class_names,
        class_names_needlessly_shared,
        checks.class_size,
        file_names,
        file_names_needlessly_shared,
        inheritance,
        inheritance_needlessly_named,
        engine_tests,
        unfed_metrics,
        ledger_is_closed,
        foreign_writes,
        foreign_writes_needlessly_open,
        reach_throughs,
        reach_throughs_needlessly_open,
        old_words,
        verb_lists,
        rooms,
        vital_tasks,
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


@pytest.mark.parametrize("check", [lua_function_size, lua_bare_index, lua_old_words])
def test_scripts(check: Callable[[Iterable[tuple[str, str]]], Iterator[str]]) -> None:
    complaints = list(check(read_scripts()))
    assert not complaints, "\n".join(complaints)


def declared_entry_points() -> dict[str, str]:
    """Name -> target of every script, adapter and command that the distributions declare."""
    project, tools = projects()
    groups = [project["scripts"], project["entry-points"]["ackd.adapters"]]
    groups.append(tools["entry-points"][ENTRY_POINTS])
    return {name: target for group in groups for name, target in group.items()}


def projects() -> tuple[dict[str, Any], dict[str, Any]]:
    """What `ackd` and `ackd-tools` say of themselves."""
    files = (REPO / "pyproject.toml", REPO / "sidecar/tools/pyproject.toml")
    main, tools = (tomllib.loads(file.read_text())["project"] for file in files)
    return main, tools


def test_no_dead_module(sources: list[Source]) -> None:
    named = re.findall(r"\btests(?:\.\w+)+", (REPO / "Makefile").read_text())
    named += [f"tests.fuzz.{target}" for target in TARGETS]
    points = [*declared_entry_points().values(), *named]
    complaints = list(checks.dead_modules(sources, points))
    assert not complaints, "\n".join(complaints)


def test_entry_points_lead_somewhere() -> None:
    for name in declared_entry_points():
        found = [*entry_points(group="ackd.adapters", name=name)]
        found += entry_points(group="console_scripts", name=name)
        found += entry_points(group=ENTRY_POINTS, name=name)
        assert found, f"{name} is declared but not installed: make .venv"
        assert found[0].load() is not None


def test_both_distributions_have_one_version() -> None:
    project, tools = projects()
    assert project["version"] == tools["version"] == __version__
    assert f"ackd=={__version__}" in tools["dependencies"]
    for name in TOOLS:
        (needed,) = project["optional-dependencies"][name]
        assert re.sub(r"\[\w+\]", "", needed) == f"ackd-tools=={__version__}"


def test_tools_depend_on_libraries_as_ackd_does() -> None:
    project, tools = projects()
    ours = {*project["dependencies"], f"ackd=={__version__}", "rich>=15.0"}
    assert set(tools["dependencies"]) <= ours


def test_no_forbidden_words() -> None:
    complaints = list(forbidden_words(tracked_files(REPO)))
    assert not complaints, "\n".join(complaints)


def test_the_walk_of_the_map_names_what_there_is(sources: list[Source]) -> None:
    page = (REPO / "ARCHITECTURE.md").read_text()
    shipped = [source for source in sources if source.shipped]
    scripts = [path for path, _ in read_scripts()]
    for heading in ("How a message goes", "When something breaks"):
        assert list(unknown_steps(section(page, heading), shipped, scripts)) == []
    assert list(unknown_files(page, sources)) == []


def test_locks_name_no_index() -> None:
    for name in ("run.lock", "dev.lock"):
        text = (REPO / "requirements" / name).read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "--index-url" not in text


def test_the_file_of_a_command_is_named_as_the_command() -> None:
    for each in COMMANDS:
        if each.module:
            assert each.module == f"ackd.cli.commands.{each.name.replace('-', '_')}"
