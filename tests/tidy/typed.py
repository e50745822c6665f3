"""The engine as mypy understands it: the type of every expression, however a name came to it.

mypy has no public way to ask for this. `mypy.build` is what its own tools use, and `Typed` is the
only place here that does.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator

from mypy import build, types
from mypy.fscache import FileSystemCache
from mypy.main import process_options
from mypy.modulefinder import BuildSource
from mypy.nodes import TypeInfo
from mypy.options import Options

from tests.support.paths import REPO
from tests.tidy.sources import Source

ENGINE = "ackd.engine"
FIRST_LINE = 10_000
"""Lines of the first module begin here. mypy gives types by line and column, of all files in one
table; so no two modules may share a line, nor have one that a file from disk has."""
Place = tuple[int, int, int, int]


class Typed:
    """The types of the expressions of some modules. Everything that they import comes from disk."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = [each for each in sources if each.module.startswith(ENGINE)]
        self._first: dict[str, int] = {}
        given, first = [], FIRST_LINE
        for each in self.sources:
            # A path that is not there: mypy keeps nothing of what it finds.
            path = f"typed:{each.path}"
            given.append(BuildSource(path, each.module, "\n" * first + each.text))
            self._first[each.module] = first
            first += each.text.count("\n") + 1
        self._types = {
            (each.line, each.column, each.end_line or 0, each.end_column or 0): kind
            for each, kind in build.build(given, _options()).types.items()
            if each.line > FIRST_LINE
        }

    def of(self, source: Source, node: ast.expr) -> types.ProperType | None:
        """The type of an expression; None when mypy never came to it."""
        first = self._first[source.module]
        end_line, end_column = node.end_lineno or 0, node.end_col_offset or 0
        place = (node.lineno + first, node.col_offset, end_line + first, end_column)
        kind = self._types.get(place)
        return None if kind is None else types.get_proper_type(kind)

    def classes(self, source: Source, node: ast.expr) -> list[TypeInfo]:
        """The classes that an expression may be of."""
        kind = self.of(source, node)
        return [] if kind is None else [*classes(kind)]


def typed(sources: Iterable[Source]) -> Typed:
    """The types of these modules; computed once."""
    return _typed(tuple(each for each in sources if each.module.startswith(ENGINE)))


@functools.lru_cache(maxsize=4)
def _typed(sources: tuple[Source, ...]) -> Typed:
    return Typed(sources)


def _options() -> Options:
    arguments = ["--config-file", str(REPO / "pyproject.toml"), "-m", ENGINE]
    _, options = process_options(arguments, fscache=FileSystemCache())
    options.export_types = options.preserve_asts = True
    options.cache_dir = str(REPO / options.cache_dir)  # that of `make lint`, which may fill it
    return options


def classes(kind: types.Type) -> Iterator[TypeInfo]:
    """The classes that a value of this type may be of."""
    match types.get_proper_type(kind):
        case types.UnionType(items=items):
            for each in items:
                yield from classes(each)
        case types.TypeVarType(upper_bound=bound):
            yield from classes(bound)
        case types.TupleType(partial_fallback=named):
            yield named.type
        case types.Instance(type=found):
            yield found
        case _:
            pass


def contents(kind: types.Type) -> Iterator[TypeInfo]:
    """The classes of a value and of what a container, a tuple or a coroutine holds of them."""
    match types.get_proper_type(kind):
        case types.UnionType(items=items) | types.TupleType(items=items):
            for each in items:
                yield from contents(each)
        case types.TypeVarType(upper_bound=bound):
            yield from contents(bound)
        case types.Instance(type=found, args=held):
            yield found
            if not found.fullname.startswith("ackd."):
                for each in held:
                    yield from contents(each)
        case _:
            pass
