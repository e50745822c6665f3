"""Checks of the scripts: the size of a function, and that a record's arrays are read by name."""

import re
from collections.abc import Iterable, Iterator

FUNCTION_LINES_MAX = 70
ARRAYS = ("origin", "slot", "line", "before", "sent_", "old", "meta")
"""What the scripts call an array whose places have names in `ackd.store.scripts`."""
_COMMENT_OR_TEXT = re.compile(r"--\[\[.*?\]\]|--[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_WORD = re.compile(r"\b(function|if|do|repeat|end|until)\b")
_BARE = re.compile(r"\b(?:" + "|".join(ARRAYS) + r")\[\d+\]")
_REASON = re.compile(r"-- tidy: long-function -- \S+")


def lua_function_size(scripts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Functions of more than 70 lines, from `function` to its `end`.

    One that only holds others has a reason in place: `-- tidy: long-function -- why`.
    """
    for path, text in scripts:
        lines = text.split("\n")
        for first, last in _functions(text):
            if last - first >= FUNCTION_LINES_MAX and not _REASON.search(lines[first - 1]):
                yield f"{path}:{first}: a function of {last - first + 1} lines"


def lua_bare_index(scripts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A place in a record's array as a bare number."""
    for path, text in scripts:
        for number, line in enumerate(_plain(text).split("\n"), 1):
            for found in _BARE.findall(line):
                yield f"{path}:{number}: {found} has a name"


def _plain(text: str) -> str:
    """Without comments and texts, line by line."""
    return _COMMENT_OR_TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)


def _functions(text: str) -> Iterator[tuple[int, int]]:
    """The first and the last line of each."""
    opened: list[tuple[str, int]] = []
    for number, line in enumerate(_plain(text).split("\n"), 1):
        for word in _WORD.findall(line):
            if word not in ("end", "until"):
                opened.append((word, number))
            elif opened:
                kind, first = opened.pop()
                if kind == "function":
                    yield first, number
