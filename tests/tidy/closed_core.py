"""What stands in a ledger is changed by the ledger alone."""

import ast
from collections.abc import Iterable, Iterator

from tests.tidy.sources import Function, Source

LEDGER = "ackd.core.ledger"
HOLDERS = frozenset({"ledger", "_ledger"})
"""Attributes and variables that are one."""
CHANGES = frozenset(
    """
    add append clear discard extend insert pop popitem popleft remove reverse setdefault sort update
    """.split()  # noqa: SIM905 -- one name a line would hide the list
)
"""Methods of containers that change them."""


def ledger_is_closed(sources: Iterable[Source]) -> Iterator[str]:
    """Shipped modules outside the core that change an attribute or a container of a ledger, of its
    parts or of an entry, also under a name that they gave it.
    """
    for source in sources:
        if source.shipped and not source.module.startswith("ackd.core."):
            names = _imported(source)
            for function in source.functions():
                for line in sorted(_changed(function, names)):
                    yield f"{source.path}:{line}: only the ledger changes what stands in it"


def _imported(source: Source) -> frozenset[str]:
    """Classes of the ledger that a module knows."""
    return frozenset(
        name.rpartition(".")[2] for _, name in source.imports() if name.startswith(f"{LEDGER}.")
    )


def _changed(function: Function, classes: frozenset[str]) -> Iterator[int]:
    """Lines of a function that change something of a ledger."""
    names = {*HOLDERS, *_parameters(function, classes)}
    before = -1
    while before != len(names):  # until no other name for one is found
        before = len(names)
        for node in ast.walk(function):
            names |= {target for target, value in _named(node) if _is_of(value, names)}
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = [part for each in node.targets for part in _parts(each)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
            targets = list(_parts(node.target))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changes = node.func.attr in CHANGES and _is_of(node.func.value, names)
            targets = [node.func] if changes else []
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript) and _is_of(target.value, names):
                yield target.lineno


def _parameters(function: Function, classes: frozenset[str]) -> Iterator[str]:
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if each.annotation is not None and each.arg != "self":
            words = {node.id for node in ast.walk(each.annotation) if isinstance(node, ast.Name)}
            if words & classes & {"Entry", "Ledger", "UnorderedLedger"}:
                yield each.arg


def _named(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(name, what it stands for) of everything that gets a name."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs += zip(target.elts, node.value.elts, strict=False)
            else:
                pairs.append((target, node.value))
    elif isinstance(node, ast.NamedExpr):
        pairs.append((node.target, node.value))
    elif isinstance(node, ast.For):
        pairs.append((node.target, node.iter))
    for target, value in pairs:
        for part in _parts(target):
            if isinstance(part, ast.Name):
                yield part.id, value


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _parts(each)
    else:
        yield target


def _is_of(value: ast.expr, names: set[str]) -> bool:
    """Whether this is a ledger, or comes out of one. What a call is given does not count."""
    match value:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(value=inner, attr=attr):
            return attr in HOLDERS or _is_of(inner, names)
        case ast.Call(func=ast.Attribute() as inner):
            return _is_of(inner, names)
        case ast.Subscript(value=inner) | ast.NamedExpr(value=inner) | ast.Await(value=inner):
            return _is_of(inner, names)
        case ast.ListComp(elt=inner):
            return _is_of(inner, names)
        case ast.IfExp(body=one, orelse=other):
            return _is_of(one, names) or _is_of(other, names)
        case _:
            return False
