"""Each word is defined once, before it is used, and pages name things by those words."""

import re
from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.tidy import docs, glossary
from tests.tidy.glossary import Word

BOLD_MIN = 25


def words() -> list[Word]:
    return glossary.read((REPO / glossary.GLOSSARY).read_text())


def test_each_word_is_defined_once_and_before_it_is_used() -> None:
    found = list(glossary.complaints(words()))
    assert not found, "\n".join(found)


def test_pages_name_things_by_the_glossarys_words() -> None:
    """But decisions and changes of earlier days, and the glossary, which names what it avoids.
    Reference pages are made from texts in the code.
    """
    other = {"adr", "CHANGELOG.md", "glossary.md", "reference"}
    pages = [page for page in docs.pages(REPO) if not other.intersection(page.parts)]
    found = list(glossary.misnamed(words(), pages))
    assert not found, "\n".join(found)


def test_what_concepts_name_can_be_looked_up() -> None:
    text = (REPO / "docs/concepts.md").read_text()
    bold = set(re.findall(r"\*\*([^*\n]+)\*\*", text))
    missing = {word.lower() for word in bold} - {word.word for word in words()}
    assert len(bold) > BOLD_MIN
    assert not missing


A, B = Word("lease", "A right.", ()), Word("token", "Stands for a lease.", ("receipt",))


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([A, B], ""),
        ([B, A], "token: its definition uses 'lease'"),
        ([A, B, A], "lease: defined twice"),
        ([A, B, Word("receipt", "Another.", ())], "receipt: is defined and avoided"),
    ],
)
def test_a_planted_mistake_is_found(entries: list[Word], complaint: str) -> None:
    found = "\n".join(glossary.complaints(entries))
    assert complaint in found
    assert bool(found) == bool(complaint)


def test_an_old_word_is_found_outside_of_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Tokens\n\n```\n# receipt\n```\n\n`receipt`, a receipt\n")
    assert [*glossary.misnamed([B], [page])] == [
        f"{page}: ', a receipt' has 'receipt'; the word is 'token'"
    ]
