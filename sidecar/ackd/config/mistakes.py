"""A mistake in the configuration: where it is, what is wrong, what is allowed, what was meant.

ackd reports all mistakes at once, so that an operator can fix them in one go. The error carries the
list.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ackd.errors import ConfigError

HIDDEN = "***"
VALUE_CHARS_MAX = 80

Path = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where in the configuration file: line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class EnvPlace:
    """The name of an environment variable."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One line of the report. `value` is ready to be shown: secrets are already taken out."""

    path: str
    problem: str
    place: FilePlace | EnvPlace | None = None
    value: str | None = None
    allowed: str | None = None
    hint: str | None = None

    @property
    def reason(self) -> str:
        """The problem, what is allowed and what was meant; not the place."""
        end = "" if self.allowed is None else f"; allowed: {self.allowed}"
        if self.hint is not None:
            end += f"; did you mean {self.hint}?"
        return f"{self.problem}{end}"

    def __str__(self) -> str:
        where = "" if self.place is None else f"{self.place}: "
        what = self.path if self.value is None else f"{self.path} = {self.value}"
        return f"{where}{what}: {self.reason}" if what else f"{where}{self.reason}"


class MistakesError(ConfigError):
    """The configuration has mistakes."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        count = "1 mistake" if len(self.mistakes) == 1 else f"{len(self.mistakes)} mistakes"
        lines = [f"The configuration has {count}:", *(f"  {each}" for each in self.mistakes)]
        super().__init__("\n".join(lines), mistakes=self.mistakes)


def dotted(path: Path) -> str:
    """Write a key path as the file would: `subscriptions.orders.topics[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False)
        text += f".{key}" if text else key
    return text


def shown(value: object) -> str:
    """A wrong value on one short line, without user names and passwords in URLs."""
    if isinstance(value, str):
        text = json.dumps(without_user_info(value), ensure_ascii=False)
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, dict):
        # Its values may be secrets; the kind is what is wrong.
        text = "a table"
    elif isinstance(value, list):
        text = f"[{', '.join(shown(each) for each in value[:10])}]"
    else:
        text = str(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 3]}..."


def without_user_info(text: str) -> str:
    """Hide user and password of an address: `redis://user:secret@host` -> `redis://***@host`."""
    return _USER_INFO.sub(f"{HIDDEN}@", text)


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, None if there is none."""
    known = {each.lower(): each for each in words}
    found = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return known[found[0]] if found else None
