"""Code of the engine writes no field of another object: who has the field gets a method for it.

A write is an assignment to `x.y` or `x.y[...]`, a deletion of these, `setattr`, and a call that
changes the container `x.y`, also under a local name for it. mypy says what `x` is, so it does not
matter how `x` was come by. A module may write what it declares itself, and what the function has
just made.

The check cannot see: objects whose type is Any, `x.__dict__`, containers that a method handed out,
and what a function of another object does with a container that it was given.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator

from tests.tidy.sources import Function, Source
from tests.tidy.typed import Typed, typed

OPEN: dict[str, str] = {
    "SeekDocument": "a file of a seek: the job notes in it how far it is, and saves it",
    "SeekTarget": "a row of that file",
    "RedriveDocument": "a file of a redrive, as above",
    "Record": "a value on its way in, to which the partition gives its own offset",
    "Delivery": "a value on its way to the application",
    "SettleResult": "as above",
    "PartsByName": "tables, into which a subscription enters its parts",
}
"""Classes without behaviour that others may write to, and why."""
CHANGES = frozenset(
    """
    add append appendleft clear discard extend insert move_to_end pop popitem popleft remove reverse
    rotate setdefault sort update __setitem__ __delitem__
    """.split()  # noqa: SIM905 -- one name a line would hide the list
)
"""Methods of containers that change them."""
CONTAINERS = re.compile(
    r"builtins\.(dict|list|set|bytearray)|collections\.|typing\.Mutable|typing\.Def"
)
Write = tuple[ast.Attribute, int]
"""The attribute that is written, and the line."""


def foreign_writes(sources: Iterable[Source]) -> Iterator[str]:
    """Fields of other objects that the engine writes."""
    for path, line, text, names in _writes(typed(sources)):
        if not names <= OPEN.keys():
            yield f"{path}:{line}: {text} is a field of another object"


def foreign_writes_needlessly_open(sources: Iterable[Source]) -> Iterator[str]:
    """Classes that others may write to, and nobody does."""
    written = {name for *_, names in _writes(typed(sources)) for name in names}
    for name in sorted(OPEN.keys() - written):
        yield f"{name}: nobody writes to it"


@functools.lru_cache(maxsize=4)
def _writes(house: Typed) -> list[tuple[str, int, str, frozenset[str]]]:
    """(path, line, text, classes) of every write to another object."""
    return [found for source in house.sources for found in sorted({*_of(source, house)})]


def _of(source: Source, house: Typed) -> Iterator[tuple[str, int, str, frozenset[str]]]:
    for function in source.functions():
        own = {"self", "cls"} | _made(function)
        for node, line in _written(function, house, source):
            if not (isinstance(node.value, ast.Name) and node.value.id in own):
                names = frozenset(
                    each.name
                    for each in house.classes(source, node.value)
                    if each.fullname.startswith("ackd.") and each.module_name != source.module
                )
                if names:
                    yield str(source.path), line, ast.unparse(node), names


def _written(function: Function, house: Typed, source: Source) -> Iterator[Write]:
    """Every attribute that a function writes."""
    aliases = _aliases(function, house, source)
    for node in ast.walk(function):
        for target in _targets(node):
            yield from _attribute(target, aliases, target.lineno)
        match node:
            case ast.Call(func=ast.Attribute(value=held, attr=name)) if name in CHANGES:
                for found, line in _attribute(held, aliases, node.lineno, whole=False):
                    if _is_container(found, house, source):
                        yield found, line
            case ast.Call(func=ast.Name("setattr"), args=[given, name, _]):
                place = ast.copy_location(ast.Attribute(given, ast.unparse(name)), node)
                yield place, node.lineno
            case _:
                pass


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement, or a part of one, sets or deletes."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            for each in targets:
                yield from _parts(each)
        case ast.AnnAssign(target=target, value=value) if value is not None:
            yield target
        case ast.AugAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
            yield from _parts(target)
        case ast.comprehension(target=target):
            yield from _parts(target)
        case ast.withitem(optional_vars=target) if target is not None:
            yield from _parts(target)
        case _:
            pass


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    match target:
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            for each in elts:
                yield from _parts(each)
        case ast.Starred(value=inner):
            yield from _parts(inner)
        case _:
            yield target


def _attribute(
    target: ast.expr, aliases: dict[str, ast.Attribute], line: int, *, whole: bool = True
) -> Iterator[Write]:
    """The attribute that a target is, or is an item of. A name alone, as a whole, is no write."""
    inside = not whole
    while isinstance(target, ast.Subscript):
        target, inside = target.value, True
    if isinstance(target, ast.Attribute):
        yield target, line
    elif isinstance(target, ast.Name) and inside and target.id in aliases:
        yield aliases[target.id], line


def _aliases(function: Function, house: Typed, source: Source) -> dict[str, ast.Attribute]:
    """Local names for containers that are attributes, or items of these."""
    found: dict[str, ast.Attribute] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                pass
            case ast.NamedExpr(target=ast.Name(name), value=value):
                pass
            case _:
                continue
        while isinstance(value, ast.Subscript):
            value = value.value
        if isinstance(value, ast.Attribute) and _is_container(value, house, source):
            found[name] = value
    return found


def _is_container(node: ast.expr, house: Typed, source: Source) -> bool:
    return any(CONTAINERS.match(each.fullname) for each in house.classes(source, node))


def _made(function: Function) -> set[str]:
    """Names for objects that a function has made itself, and that mean nothing else in it."""
    made: set[str] = set()
    others = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    for node in ast.walk(function):
        match node:
            case ast.Assign(
                targets=[ast.Name(name)],
                value=ast.Call(func=ast.Name(kind) | ast.Attribute(attr=kind)),
            ) if kind.lstrip("_")[:1].isupper() or kind == "cls":
                made.add(name)
            case _:
                others |= {each.id for each in _targets(node) if isinstance(each, ast.Name)}
                if isinstance(node, ast.NamedExpr):
                    others.add(node.target.id)
    return made - others
