"""Checks of `docs/glossary.md`: a word is defined once, before it is used, and has no rival."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

GLOSSARY = "docs/glossary.md"
_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")


class Word(NamedTuple):
    """An entry. `avoided`: words that are not used for it."""

    word: str
    meaning: str
    avoided: tuple[str, ...]


def read(page: str) -> list[Word]:
    """The entries, in order."""
    rows = [tuple(part.strip() for part in row) for row in _ROW.findall(page)]
    return [
        Word(word, meaning, tuple(filter(None, (each.strip() for each in avoided.split(",")))))
        for word, meaning, avoided in rows
        if word not in {"word", "---"}
    ]


def complaints(words: Sequence[Word]) -> Iterator[str]:
    """Words that are defined twice, avoided and defined, or used before their definition."""
    seen: set[str] = set()
    for word in words:
        if word.word in seen:
            yield f"{word.word}: defined twice"
        seen.add(word.word)
    for each in words:
        yield from (f"{bad}: is defined and avoided" for bad in each.avoided if bad in seen)
    for at, each in enumerate(words):
        for later in words[at + 1 :]:
            if _uses(each.meaning, later.word):
                yield f"{each.word}: its definition uses {later.word!r}, which comes later"


def prose(text: str) -> Iterator[str]:
    """The lines of a page without code."""
    yield from _CODE.sub("", _FENCE.sub("", text)).splitlines()


def misnamed(words: Iterable[Word], pages: Iterable[Path]) -> Iterator[str]:
    """Lines of pages that use avoided words, code apart."""
    avoided = {bad: word.word for word in words for bad in word.avoided}
    for page in pages:
        for line in prose(page.read_text()):
            for bad, good in avoided.items():
                if _uses(line, bad):
                    yield f"{page}: {line!r} has {bad!r}; the word is {good!r}"


def _uses(text: str, word: str) -> bool:
    text = _CODE.sub("", text)
    return re.search(rf"(?<![\w-]){re.escape(word)}s?(?![\w-])", text, re.IGNORECASE) is not None
