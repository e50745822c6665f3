"""The documentation says what is so: links, commands, reference pages made from the code."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ackd.cli.docs import OWN_ADAPTERS, PAGES
from tests.support.paths import REPO
from tests.tidy import docs
from tests.tidy.names import documented_names

PROGRAM = Path(sys.executable).with_name("ackd")


@functools.cache
def command_exists(name: str) -> bool:
    """Whether the installed `ackd` has this command and can explain it."""
    done = subprocess.run([PROGRAM, name, "--help"], check=False, capture_output=True, timeout=30)
    return done.returncode == 0


def test_links_and_commands() -> None:
    found = list(
        docs.broken(
            docs.pages(REPO), targets=docs.make_targets(REPO), command_exists=command_exists
        )
    )
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_reference_page_is_up_to_date(page: str) -> None:
    path = REPO / "docs" / f"{page}.md"
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
    assert not missing, f"not in docs/{page}.md: {missing}"
    assert not silent, f"without documentation at their source: {silent}"


def test_every_problem_type_has_its_own_sentence() -> None:
    """Callers decide by the type, so no two types may say the same."""
    sentences = list(documented_names()["problems"].values())
    assert len(sentences) == len(set(sentences))


def test_metrics_that_pages_name_exist() -> None:
    """An alert on a name that nothing exports never fires."""
    known = set(documented_names()["metrics"])
    for name in list(known):
        known.update(f"{name}{suffix}" for suffix in ("_bucket", "_count", "_sum"))
    packages = {"ackd_adapters", "ackd_reports"}
    for page in docs.pages(REPO):
        named = set(re.findall(r"\backd_[a-z_]+", page.read_text()))
        assert named <= known | packages, f"{page}: {named - known - packages}"
