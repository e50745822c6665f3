"""Checks of the scripts: the size of a function, and that places of arrays have names."""

import re
from collections.abc import Iterable, Iterator

FUNCTION_LINES_MAX = 70
ARRAYS = ("origin", "slot", "line", "before", "sent_", "old", "meta")
"""What the scripts call an array whose places have names in `ackd.store.scripts`."""
_COMMENT_OR_TEXT = re.compile(r"--\[\[.*?\]\]|--[^\n]*|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_WORD = re.compile(r"\b(function|if|do|repeat|end|until)\b")
_BARE = re.compile(r"([\w.]+|[\])])\[\s*\d+\s*\]")
_GIVEN = ("KEYS", "ARGV")
"""What a script is called with: its head says what stands where."""
_ASKED = re.compile(r"\b(?:if|elseif|while|not)\s+\w+\[\d+\]\s+(?:then|do|and|or)\b")
_REASON = re.compile(r"-- tidy: long-function lines=(\d+) -- \S+")


def lua_function_size(scripts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Functions of more than 70 lines, from `function` to its `end`.

    One that may have more says how many, and why: `-- tidy: long-function lines=N -- why`.
    """
    for path, text in scripts:
        lines = text.split("\n")
        for first, last in _functions(text):
            lifted = _REASON.search(lines[first - 1])
            most = int(lifted[1]) if lifted else FUNCTION_LINES_MAX
            if last - first >= most:
                yield f"{path}:{first}: a function of {last - first + 1} lines"


def lua_bare_index(scripts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A place in an array as a bare number.

    It may be one in `KEYS` and `ARGV`; in the reply of a command, for as long as the name is that
    of the reply (`local time = redis.call("TIME")`); and where a condition asks whether a list has
    so many members (`if gone[1] then`). Not where the places have names: `ARRAYS`.
    """
    for path, text in scripts:
        plain = _plain(text)
        asked = {found.end() for each in _ASKED.finditer(plain) for found in _in(each)}
        for found in _BARE.finditer(plain):
            array = found[1]
            listed = (
                array in _GIVEN or found.end() in asked or _is_reply(array, plain[: found.start()])
            )
            if array in ARRAYS or not listed:
                number = plain.count("\n", 0, found.start()) + 1
                yield f"{path}:{number}: {found[0]} has no name"


def _in(condition: re.Match[str]) -> Iterator[re.Match[str]]:
    return _BARE.finditer(condition.string, condition.start(), condition.end())


def _is_reply(array: str, before: str) -> bool:
    """Whether what last got this name before is what a command replied."""
    name = re.escape(array)
    given = rf"\b(?:local|for|function)\b[^=\n]*\b{name}\b[^\n]*|(?<![\w.]){name}\s*=[^=][^\n]*"
    *_, last = ["", *re.findall(given, before)]
    return bool(re.match(rf"local {name} = (?:redis\.)?call\(", last))


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
