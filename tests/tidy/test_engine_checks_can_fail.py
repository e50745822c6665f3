"""The checks that read the engine with mypy's eyes find each planted mistake, and nothing else."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.tidy.foreign_writes import OPEN as WRITABLE
from tests.tidy.foreign_writes import foreign_writes, foreign_writes_needlessly_open
from tests.tidy.reach_throughs import (
    OPEN,
    ROOTS,
    VALUES,
    reach_throughs,
    reach_throughs_needlessly_open,
)
from tests.tidy.sources import Source

Check = Callable[[Iterable[Source]], Iterator[str]]
PARTS = '''"""."""
from __future__ import annotations
from contextlib import contextmanager
from collections.abc import Callable, Iterator
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
    def numbers(self) -> list[int]: ...
    def other(self) -> Whole: ...
    def part(self) -> Inner: ...
    def change(self) -> None: ...
    def all(self) -> list[Inner]: ...
    async def later(self) -> Inner: ...
    async def whole(self) -> Whole: ...
    def handles(self) -> Callable[[], Inner]: ...
    @property
    def shown(self) -> Inner: ...
    @contextmanager
    def opened(self) -> Iterator[Inner]: ...
    @contextmanager
    def lent(self) -> Iterator[Whole]: ...
class Described(Protocol):
    inner: Inner
    def is_open(self) -> bool: ...
class Bag(Protocol):
    whole: Whole | None
'''
HEAD = '''"""."""
from __future__ import annotations
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from ackd.engine.base.parts import Bag, Described, Inner, Whole
class Own:
    count = 0
    def __init__(self) -> None:
        self.inner = Inner()
    def is_open(self) -> bool: ...
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
REACHES = [
    planted("given.inner.go()"),
    planted("inner = given.inner", "inner.go()"),
    planted("print(given.inner)"),
    planted("if given.inner:", "    pass"),
    planted("given.other().inner.go()"),
    planted("if one := given.other():", "    one.inner.go()"),
    planted("if part := given.inner:", "    part.go()"),
    planted("def g() -> None:", "    given.inner.go()"),
    planted("g = lambda: given.inner.go()"),
    planted("given.part().go()"),
    planted("get = given.part", "get().go()"),
    planted("given.handles()().go()"),
    planted("given.shown.go()"),
    planted("(await given.later()).go()"),
    planted("(await given.whole()).inner.go()"),
    planted("given.more[0].go()"),
    planted("for each in given.more:", "    each.go()"),
    planted("for each in given.all():", "    each.go()"),
    planted("given.by_name['a'].go()"),
    planted("for each in given.by_name.values():", "    each.go()"),
    planted("part, _ = given.pair", "part.go()"),
    planted("if given.maybe is not None:", "    pass"),
    planted("with given.opened() as part:", "    part.go()"),
    planted("with given.lent() as whole:", "    whole.inner.go()"),
    planted("match given:", "    case Whole(inner=part):", "        part.go()"),
    planted("match given.inner:", "    case Inner():", "        pass"),
    planted("getattr(given, 'inner').go()"),
    planted("getattr(given, name).go()", argument="given: Whole, name: str"),
    planted("vars(given)['inner'].go()"),
    planted("given.__dict__['inner'].go()"),
    planted("given.whole.is_open()", argument="given: Bag"),
    planted("given.inner.go()", argument="given: Described"),
    planted("given.inner.go()", argument="given: Whole | None"),
    planted("given.inner.go()", argument="given: Own | Whole"),
    planted("for each in given:", "    each.inner.go()", argument="*given: Whole"),
    planted("for x in given.values():", "    x.inner.go()", argument="**given: Whole"),
    planted("for _, x in given.items():", "    x.inner.go()", argument="given: dict[str, Whole]"),
    planted("print([each.inner for each in given])", argument="given: Sequence[Whole]"),
    planted("async for x in given:", "    x.inner.go()", argument="given: AsyncIterator[Whole]"),
    planted("given['a'].inner.go()", argument="given: Mapping[str, Whole]"),
    planted("given[0][1].inner.go()", argument="given: list[tuple[int, Whole]]"),
    planted("given('a').inner.go()", argument="given: Callable[[str], Whole]"),
    planted("x, y = given", "y.inner.go()", argument="given: tuple[int, Whole]"),
    planted("(one or two).inner.go()", argument="one: Whole, two: Whole"),
    planted("(one if two else two).inner.go()", argument="one: Whole, two: Whole"),
    planted("(lambda: given)().inner.go()"),
    planted("next(iter(given)).inner.go()", argument="given: set[Whole]"),
    planted("sorted(given, key=str)[0].inner.go()", argument="given: list[Whole]"),
    planted("super_whole: Whole = given", "super_whole.inner.go()"),
    HEAD + HOLDER.replace("DO", "self._whole.inner.go()"),
]
NO_REACHES = [
    planted(
        "given.is_open()", "given.other", "x = given.count.real", "given.numbers()[0].real"
    ).replace("    given.other\n", ""),
    planted("given.inner.go()", argument="given: Own"),
    planted("given.inner.go()", argument="given: Any"),
    planted("for each in given:", "    each.go()", argument="given: Sequence[Inner]"),
    planted("given['a'].go()", argument="given: Mapping[str, Inner]"),
    planted("Inner().go()"),
    HEAD + HOLDER.replace("DO", "self._whole.is_open()"),
    f"{HEAD}class Child(Whole):\n    def go(self) -> None:\n        self.inner.go()\n",
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
        assert bool(counted[f"planted_{number}"]) == (number < len(bad)), f"{counted}\n{text}"


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


def test_planted_reach_throughs_are_found() -> None:
    assert_each_is_found(reach_throughs, REACHES, NO_REACHES)


def test_a_reach_through_may_be_open_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = house([planted("given.inner.go()")])
    assert len([*reach_throughs(sources)]) == 1
    tables = ((OPEN, "Whole"), (OPEN, "Whole.inner"), (OPEN, "Inner"), (VALUES, "Inner"))
    for table, name in (*tables, (ROOTS, "ackd.engine.base.planted_0")):
        with monkeypatch.context() as patched:
            patched.setitem(table, name, "for this test")
            assert not [*reach_throughs(sources)]
            assert not [x for x in reach_throughs_needlessly_open(sources) if x.startswith(name)]


def test_what_nobody_goes_through_need_not_be_open() -> None:
    unused = [*reach_throughs_needlessly_open(house([planted("given.inner.go()")]))]
    assert "Context: nobody goes through it" in unused
    assert "Entry: nobody goes through it" in unused
    assert f"{next(iter(ROOTS))}: it takes no part out of another" in unused
