"""A class inherits only from what it stands in for: never to use what another class has.

Free are a library's classes that are made to be inherited from, errors, and what has no behaviour
of its own: protocols, and classes of abstract methods alone. Any other base is named here.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from tests.tidy.sources import Function, Source

DEMANDED = frozenset(
    # The language: what describes a kind of value, or of class.
    {"ABC", "Enum", "Generic", "IntEnum", "NamedTuple", "Protocol", "StrEnum", "Struct"}
    # A library calls what it is given, and demands a class of its own.
    | {"asyncio.BufferedProtocol", "asyncio.Protocol"}
    | {"logging.Filter", "logging.Formatter", "logging.Handler", "logging.StreamHandler"}
    | {"Collector", "HTTPConnection", "IdGenerator", "SpanProcessor"}
    | {"App", "DataTable", "Screen"}
)
"""Bases of libraries that are made to be inherited from."""
STANDS_IN: dict[str, str] = {
    "Body": "the reader of a request takes pieces of any body, however it is framed",
    "Child": "a run freezes and kills any of its child processes, whatever that serves",
    "DeadView": "a dead letter with its content is listed wherever one without is",
    "Ledger": "the owner of a partition asks its ledger, in whatever order messages arrive",
    "Mapping": "headers are read as any mapping is",
    "Operation": "a call to the store is a list of any operations",
    "Reply": "the server sends any reply, one that lasts too",
    "SettleCall": "a subscription settles any call, one that knows its place in a request too",
    "Untraced": "parts tell what becomes of messages, whether traces are on or not",
    "Worker": "the loop of its thread calls the four methods of any client",
    "_RequestBody": "a body is read as any request is: unknown fields are refused",
    "_Selection": "a body's fields are flat on the wire, and both select dead letters",
    "_LeaseBody": "a batch is a list of any settles",
    "dict": "a table is read as any dict is",
    "str": "a marked text is written wherever a text is",
}
"""Bases with behaviour of their own -> how whoever has the base uses any of its subclasses."""


def inheritance(sources: Iterable[Source]) -> Iterator[str]:
    """Classes of the product that inherit from a base which nothing allows."""
    house = [source for source in sources if source.shipped]
    free = _free(house)
    for source, node, base in _bases(house):
        if base not in DEMANDED and base not in free and base not in STANDS_IN:
            yield (
                f"{source.path}:{node.lineno}: {node.name} inherits from {base}: give it one "
                "instead, or say in tests/tidy/inheritance.py for whom it stands in"
            )


def inheritance_needlessly_named(sources: Iterable[Source]) -> Iterator[str]:
    """Bases that are named and that no class has, or that any class may have."""
    house = [source for source in sources if source.shipped]
    used, free = {base for _, _, base in _bases(house)}, _free(house)
    for base in sorted({*DEMANDED, *STANDS_IN}):
        if base not in used:
            yield f"{base}: no class inherits from it"
    for base in sorted(free & {*DEMANDED, *STANDS_IN}):
        yield f"{base}: any class may inherit from it"


def _bases(house: Iterable[Source]) -> Iterator[tuple[Source, ast.ClassDef, str]]:
    for source in house:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    yield source, node, _name(base)


def _name(base: ast.expr) -> str:
    """The name of a base, without its type arguments and the module that holds it."""
    text = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
    return text if text.startswith(("asyncio.", "logging.")) else text.rpartition(".")[2]


def _free(house: Iterable[Source]) -> set[str]:
    """Errors, and classes without behaviour."""
    errors = {
        name
        for name, each in vars(builtins).items()
        if isinstance(each, type) and issubclass(each, BaseException)
    }
    found = {n.name: n for s in house for n in ast.walk(s.tree) if isinstance(n, ast.ClassDef)}
    known = -1
    while known != len(errors):
        known = len(errors)
        errors |= {n.name for n in found.values() if any(_name(b) in errors for b in n.bases)}
    return errors | {name for name, node in found.items() if _is_abstract(node)}


def _is_abstract(node: ast.ClassDef) -> bool:
    """Whether it is a protocol, or all its methods are abstract."""
    bases = {_name(each) for each in node.bases}
    methods = [each for each in node.body if isinstance(each, Function)]
    abstract = all("abstract" in "".join(map(ast.unparse, m.decorator_list)) for m in methods)
    return "Protocol" in bases or ("ABC" in bases and abstract)
