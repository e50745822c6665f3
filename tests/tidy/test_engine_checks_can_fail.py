"""The checks that read the engine with mypy's eyes find each planted mistake, and nothing else."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.tidy.foreign_writes import OPEN as WRITABLE
from tests.tidy.foreign_writes import foreign_writes, foreign_writes_needlessly_open
from tests.tidy.sources import Source

Check = Callable[[Iterable[Source]], Iterator[str]]
PARTS = '''"""."""
from __future__ import annotations
from contextlib import contextmanager
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol
class Inner:
    size = 0
    items: list[int] = []
    def go(self) -> None: ...
class Whole:
    def __init__(self) -> None:
        self.inner = Inner()
        self.more = [Inner()]
        self.by_name = {"a": Inner()}
        self.pair = (Inner(), 1)
        self.maybe: Inner | None = None
        self.count = 0
        self.ready: dict[str, list[int]] = {}
        self.told: list[int] = []
    def is_open(self) -> bool: ...
    def other(self) -> Whole: ...
    def part(self) -> Inner: ...
    def change(self) -> None: ...
    def all(self) -> list[Inner]: ...
    async def later(self) -> Inner: ...
    @property
    def shown(self) -> Inner: ...
    @contextmanager
    def opened(self) -> Iterator[Inner]: ...
'''
HEAD = '''"""."""
from __future__ import annotations
from collections.abc import Callable, Mapping, Sequence
from ackd.engine.base.parts import Inner, Whole
class Own:
    count = 0
'''
HOLDER = """class Holder:
    def __init__(self, whole: Whole) -> None:
        self._whole = whole
    def go(self) -> None:
        DO
"""


def planted(*lines: str, argument: str = "given: Whole") -> str:
    """A module of the engine with one function, which does this with what it is given."""
    return f"{HEAD}async def f({argument}) -> None:\n" + "".join(f"    {each}\n" for each in lines)


WRITES = [
    planted("given.count = 1"),
    planted("given.count += 1"),
    planted("given.count: int = 1"),
    planted("x, given.count = 1, 2"),
    planted("x = given.count = 1"),
    planted("given.other().count = 1"),
    planted("given.more[0].size = 1"),
    planted("given.ready['a'] = []"),
    planted("given.ready['a'] += [1]"),
    planted("del given.ready['a']"),
    planted("del given.count"),
    planted("given.told.append(1)"),
    planted("given.ready['a'].append(1)"),
    planted("given.ready.setdefault('a', [])"),
    planted("told = given.told", "told.append(1)"),
    planted("ready = given.ready", "ready['a'] = []"),
    planted("if told := given.told:", "    told.clear()"),
    planted("for given.count in range(3):", "    pass"),
    planted("for each in given:", "    each.count = 1", argument="given: Sequence[Whole]"),
    planted(
        "for each in given.values():", "    each.count = 1", argument="given: dict[str, Whole]"
    ),
    planted("given['a'].count = 1", argument="given: Mapping[str, Whole]"),
    planted("given().count = 1", argument="given: Callable[[], Whole]"),
    planted("if given is not None:", "    given.count = 1", argument="given: Whole | None"),
    planted("def g() -> None:", "    given.count = 1"),
    planted("with given.opened() as part:", "    part.size = 1"),
    planted("match given:", "    case Whole(inner=part):", "        part.size = 1"),
    planted("(await given.later()).size = 1"),
    planted("for each in given:", "    each.count = 1", argument="*given: Whole"),
    planted("setattr(given, 'count', 1)"),
    planted("made = Whole()", "made = given", "made.count = 1"),
    HEAD + HOLDER.replace("DO", "self._whole.count = 1"),
]
NO_WRITES = [
    planted("given.change()"),
    planted("made = Whole()", "made.count = 1", "made.told.append(1)"),
    planted("given.count = 1", argument="given: Own"),
    planted("count = given.count", "count += 1"),
    planted("told = list(given.told)", "told.append(1)"),
    planted("told: list[int] = []", "told.extend(given.told)"),
    f"{HEAD}class Child(Whole):\n    def go(self) -> None:\n        self.count = 1\n",
]


def house(texts: Iterable[str]) -> list[Source]:
    """The parts, and a module for each text."""
    named = {f"planted_{number}": text for number, text in enumerate(texts)}
    return [
        Source(Path(f"{name}.py"), f"ackd.engine.base.{name}", text, ast.parse(text), shipped=True)
        for name, text in {"parts": PARTS, **named}.items()
    ]


def found(check: Check, texts: Iterable[str]) -> Counter[str]:
    """How many complaints there are of each file."""
    return Counter(each.partition(".py:")[0] for each in check(house(texts)))


def assert_each_is_found(check: Check, bad: list[str], good: list[str]) -> None:
    counted = found(check, [*bad, *good])
    for number, text in enumerate([*bad, *good]):
        expected = int(number < len(bad))
        assert counted[f"planted_{number}"] == expected, f"{counted}\n{text}"


def test_planted_writes_are_found() -> None:
    assert_each_is_found(foreign_writes, WRITES, NO_WRITES)


def test_values_may_be_written_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    text = planted("given.count = 1")
    sources = house([text])
    assert len([*foreign_writes(sources)]) == 1
    monkeypatch.setitem(WRITABLE, "Whole", "for this test")
    assert not [*foreign_writes(sources)]
    unused = [*foreign_writes_needlessly_open(sources)]
    assert "Record: nobody writes to it" in unused
    assert "Whole: nobody writes to it" not in unused
