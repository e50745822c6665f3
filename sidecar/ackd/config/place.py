"""Find where each key of a TOML text is: the standard library's parser does not say.

The text is one that `tomllib` has accepted, so this scanner only has to find keys, not to judge. It
skips values by their first character (TOML 1.0: strings of four kinds, arrays, inline tables, and
bare values, which end at a comma, a closing bracket, a comment or the line's end).
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable

from ackd.config.mistakes import Path

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}\n#]*")
_STRINGS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


def find_places(text: str) -> dict[Path, tuple[int, int]]:
    """Line and column (from 1) of every key, table header and list item, by key path."""
    return _Scanner(text).scan()


class _Scanner:
    """One pass over the text; `_at` is the position of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Path, tuple[int, int]] = {}
        self._counts: dict[Path, int] = {}
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def scan(self) -> dict[Path, tuple[int, int]]:
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)
        return self._found

    def _header(self) -> Path:
        start = self._at
        many = self._text.startswith("[[", start)
        self._at += 2 if many else 1
        path = self._key(self._indexed)
        self._at += 2 if many else 1
        if many:
            count = self._counts.get(path, 0)
            self._counts[path] = count + 1
            self._note(path, start)
            path = (*path, count)
        self._note(path, start)
        return path

    def _indexed(self, path: Path) -> Path:
        """A table below an array of tables belongs to the array's last item."""
        count = self._counts.get(path)
        return path if count is None else (*path, count - 1)

    def _pair(self, table: Path) -> None:
        start = self._at
        path = self._key(lambda path: path, table)
        for length in range(len(table) + 1, len(path) + 1):
            self._note(path[:length], start)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self, seen: Callable[[Path], Path], path: Path = ()) -> Path:
        while True:
            self._skip(_SPACE)
            part = self._string()
            if part is None:
                match = _BARE_KEY.match(self._text, self._at)
                if match is None:
                    message = f"no key at position {self._at}"
                    raise ValueError(message)
                self._at = match.end()
                part = match[0]
            else:
                part = str(tomllib.loads(f"key = {part}")["key"])
            path = (*path, part)
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return path
            path = seen(path)
            self._at += 1

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        first = self._text[self._at]
        if first == "[":
            self._items(path, "]")
        elif first == "{":
            self._items(path, "}")
        elif self._string() is None:
            self._skip(_BARE_VALUE)

    def _items(self, path: Path, end: str) -> None:
        """An array or an inline table; commas are skipped, the parser has checked them."""
        self._at += 1
        count = 0
        while True:
            self._skip(_BLANK)
            mark = self._text[self._at]
            if mark == end:
                self._at += 1
                return
            if mark == ",":
                self._at += 1
            elif end == "}":
                self._pair(path)
            else:
                self._note((*path, count), self._at)
                self._value((*path, count))
                count += 1

    def _string(self) -> str | None:
        for kind in _STRINGS:
            match = kind.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                return match[0]
        return None

    def _skip(self, what: re.Pattern[str]) -> None:
        match = what.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _note(self, path: Path, start: int) -> None:
        if path not in self._found:
            line = bisect_right(self._lines, start)
            self._found[path] = (line, start - self._lines[line - 1] + 1)
