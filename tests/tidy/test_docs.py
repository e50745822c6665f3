"""The documentation says what is so: links, commands, reference pages made from the code."""

import contextlib
import functools
import io
import re
from pathlib import Path

import pytest

from ackd.cli.commands.docs import OWN_ADAPTERS, PAGES
from ackd.cli.main import main
from ackd.config.load import load_text
from ackd.inject.inject_metrics import InjectMetrics
from tests.support.paths import REPO
from tests.tidy import docs
from tests.tidy.names import documented_names
from tests.tidy.sources import PACKAGES
from tests.tidy.words import tracked_files

CONFIGURATIONS_MIN = 10
PAGES_NAMED_MIN = 40
FILES_NAMED_MIN = 10
DECISION_LINES_MAX = 60


@functools.cache
def help_of(name: str) -> str:
    """What `ackd` says of one of its commands; nothing if there is none."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = main([name, "--help"])
        except SystemExit as end:
            code = int(end.code or 0)
    return "" if code else said.getvalue()


def test_links_and_commands() -> None:
    found = list(
        docs.broken(docs.pages(REPO), repo=REPO, targets=docs.make_targets(REPO), help_of=help_of)
    )
    assert not found, "\n".join(found)


def test_pages_that_anything_names_exist() -> None:
    named = {
        (file.relative_to(REPO).as_posix(), page)
        for file in tracked_files(REPO)
        if file.suffix in {".py", ".lua", ".toml", ".yaml", ".json", ".tpl", ".md", ""}
        for page in docs.pages_named(file.read_text())
    }
    own = {(file, page) for file, page in named if not file.startswith("tests/tidy/")}
    assert len(own) > PAGES_NAMED_MIN
    assert [each for each in sorted(own) if not (REPO / each[1]).exists()] == []


def test_configurations_of_pages_are_taken() -> None:
    count = 0
    for page in docs.pages(REPO):
        for text in docs.configurations(page.read_text()):
            load_text(text, page, {}, check_files=False)  # raises what is wrong
            count += 1
    assert count > CONFIGURATIONS_MIN


def test_pages_are_easy_on_the_eye() -> None:
    """Decisions keep their form, and reference pages that of their source."""
    found = [
        f"{page}: {each}"
        for page in [*(REPO / "docs").rglob("*.md"), REPO / "README.md"]
        if "adr" not in page.parts and "reference" not in page.parts
        for each in docs.hard_to_read(page.read_text(), lines_max=5, columns_max=120)
    ]
    assert not found, "\n".join(found)


def test_commands_that_anybody_may_type_are_run_by_a_test() -> None:
    for page, test in docs.RUN.items():
        text = (REPO / test).read_text()
        assert Path(page).name in text
        assert any("curl " in command for command in docs.shell_commands((REPO / page).read_text()))


def test_tests_that_pages_name_exist() -> None:
    known = {
        name
        for root in (REPO / "tests", REPO / "sidecar/tools/ackd_testing")
        for path in root.rglob("*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = {page: docs.tests_named(page.read_text()) for page in docs.pages(REPO)}
    assert len(named[REPO / "THREAT_MODEL.md"]) > 20
    missing = {page.name: sorted(names - known) for page, names in named.items() if names - known}
    assert not missing


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/develop/common-changes.md"])
def test_files_that_lists_for_changes_name_exist(page: str) -> None:
    """Code may be named by its path below `sidecar/ackd`, tests by theirs below `tests`."""
    roots = (REPO, REPO / "sidecar" / "ackd", REPO / "tests")
    named = docs.files_named((REPO / page).read_text())
    assert len(named) > FILES_NAMED_MIN
    assert [
        each for each in sorted(named) if not any((root / each).exists() for root in roots)
    ] == []


@pytest.mark.parametrize("index", ["docs/README.md", "docs/develop/adr/README.md"])
def test_an_index_leads_to_every_page_of_its_folders(index: str) -> None:
    page = REPO / index
    below = {found for found in page.parent.rglob("*.md") if found != page}
    other = REPO / "docs/develop/adr"
    if page.parent != other:
        below = {found for found in below if found.parent != other} | {other / "README.md"}
    assert below - docs.linked(page) == set()


def test_decisions_have_one_page_and_every_number() -> None:
    folder = REPO / "docs/develop/adr"
    lines = {page.name: len(page.read_text().splitlines()) for page in folder.glob("0*.md")}
    assert {name: count for name, count in lines.items() if count > DECISION_LINES_MAX} == {}
    listed = re.findall(r"^\| \[?(\d+)[\] ]", (folder / "README.md").read_text(), re.MULTILINE)
    assert [int(number) for number in listed] == list(range(1, len(listed) + 1))


def test_the_readme_leads_to_the_index_and_to_each_section() -> None:
    found = docs.linked(REPO / "README.md")
    first = {REPO / "docs/README.md", REPO / "docs/quickstart.md", REPO / "THREAT_MODEL.md"}
    assert first <= found
    sections = {path.parent for path in docs.pages(REPO) if path.parent.parent == REPO / "docs"}
    assert sections <= {path for page in found for path in page.parents}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_reference_page_is_up_to_date(page: str) -> None:
    path = REPO / "docs" / "reference" / f"{page}.md"
    assert path.exists(), f"run `make docs`: {path.name} is missing"
    assert path.read_text() == PAGES[page](OWN_ADAPTERS), f"run `make docs`: {path.name} is old"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_reference_page_names_everything(page: str) -> None:
    """Every setting, route, error type, metric and command is documented."""
    names = documented_names()[page]
    text = PAGES[page](OWN_ADAPTERS)
    assert names
    missing = [name for name in names if f"`{name}`" not in text and f"\n## {name}\n" not in text]
    silent = [name for name, sentence in names.items() if len(sentence.split()) < 2]
    assert not missing, f"not in docs/reference/{page}.md: {missing}"
    assert not silent, f"without documentation at their source: {silent}"


def test_every_problem_type_has_its_own_sentence() -> None:
    """Callers decide by the type, so no two types may say the same."""
    sentences = list(documented_names()["problems"].values())
    assert len(sentences) == len(set(sentences))


def injector_metrics() -> set[str]:
    """Names of the webhook's own metrics, and of their counters as they are scraped."""
    names = {metric.name for metric in InjectMetrics().registry.collect()}
    return names | {f"{name}_total" for name in names}


def test_metrics_that_pages_name_exist() -> None:
    """An alert on a name that nothing exports never fires."""
    known = set(documented_names()["metrics"])
    for name in list(known):
        known.update(f"{name}{suffix}" for suffix in ("_bucket", "_count", "_sum"))
    known |= injector_metrics()
    for page in docs.pages(REPO):
        named = set(re.findall(r"\backd_[a-z_]+", page.read_text()))
        assert named <= known | {*PACKAGES}, f"{page}: {named - known - {*PACKAGES}}"
