"""Nobody goes through a part that it was given to the parts of that part (ADR 18).

A part is an object with behaviour, of the engine or of a ledger. A reach-through takes a part out
of a part that the code was given: by an attribute, a property, or what a method returns, alone or
in a container. Whoever wants something of the inner part asks the outer one, or is given the inner
one.

mypy says what each expression is, so it does not matter how the outer part was come by: argument,
attribute, loop, item, `with`, `match`, `:=`, `await`, call. What a module declares itself it may
look into; `self` is no part that was given.

The check cannot see: objects whose type is Any, `operator.attrgetter`, patterns by position, and
what code outside of the engine does on behalf of its caller.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator

from mypy import nodes, types

from tests.tidy.sources import Source
from tests.tidy.typed import ENGINE, Typed, classes, contents, typed

WITH_PARTS = (f"{ENGINE}.", "ackd.core.ledger.")
"""Modules whose classes are looked at; those of others are what a part works with."""
VALUES: dict[str, str] = {
    "Entry": "what a ledger knows of a message; only the ledger changes it",
    "LinkRoom": "the bytes that are under way on a link, for all who answer there",
    "MovedMessages": "what a record's snapshot says, on its way",
    "RedriveDocument": "what a redrive has saved",
    "SentBack": "what a ledger leaves behind of a message",
    "Stub": "stands for a body",
    "UnsentMessage": "one message of the outbox, in its queue and with who sends it",
    "Waiter": "one receive, which its caller answers or leaves",
}
"""Classes with methods that are data all the same, and why."""
OPEN: dict[str, str] = {
    "Context": "what every part is given anyway",
    "SubscriptionState": "what every part of a subscription is given anyway",
    "Signals": "the signals of the state, for whoever has something to tell",
    "OwnedPartitions": "a collection: it is asked for the partitions in it",
    "Partition.ledger": "what a partition is to its readers: passing on each question is a wall",
    "Partition.copies": "as its ledger: notes on the copies of its messages",
    # A ledger is made of parts with one job each; a call more for each would be in the hot path.
    "Ledger.intake": "takes what the broker brings, batch by batch",
    "Ledger.grants": "chooses the messages of each receive",
    "Ledger.deadlines": "knows what is due next, for each reply and each timer",
    "Ledger.send_back": "knows what moves to the retry topic, and which keys that blocks",
    "Ledger.bodies": "knows which bodies may go to disk; only the spill asks it",
    "Ledger.claims": "knows what waits for origin records; only copies have it",
    "Ledger.order": "knows queues of keys; only ordered partitions have it",
    "Ledger.limits": "bounds that it was given",
}
"""Classes, or members of a class (`Class.member`), that anybody may go through, and why."""
ROOTS: dict[str, str] = {
    "ackd.engine.runtime": "builds the subscriptions, and hands parts of them to others",
    "ackd.engine.subscription": "builds the parts, and hands parts of them to others",
}
"""Modules that may take parts out of others, and why."""
_DATA = frozenset(
    {"enum.Enum", "msgspec.Struct", "typing.NamedTuple", "builtins.tuple", "builtins.BaseException"}
)
Reach = tuple[int, str, frozenset[str]]
"""The line, the text, and the names under which it may be open."""


def reach_throughs(sources: Iterable[Source]) -> Iterator[str]:
    """Code of the engine that takes a part out of a part it was given."""
    house = typed(sources)
    for source in house.sources:
        if source.module not in ROOTS:
            for line, text, names in _reached(source, house):
                if not names & (OPEN.keys() | VALUES.keys()):
                    yield f"{source.path}:{line}: {text} reaches through a part to a part of it"


def reach_throughs_needlessly_open(sources: Iterable[Source]) -> Iterator[str]:
    """What anybody may go through, and nobody does; values and modules that need no exception."""
    house = typed(sources)
    by_module = {each.module: _reached(each, house) for each in house.sources}
    through = {name for found in by_module.values() for *_, names in found for name in names}
    for name in sorted((OPEN.keys() | VALUES.keys()) - through):
        yield f"{name}: nobody goes through it"
    for module in sorted(ROOTS):
        if not by_module.get(module):
            yield f"{module}: it takes no part out of another"


@functools.lru_cache(maxsize=1_000)
def _reached(source: Source, house: Typed) -> list[Reach]:
    """Everything that a module takes out of a part it was given, and that is a part."""
    found: dict[tuple[int, str], frozenset[str]] = {}
    for node in ast.walk(source.tree):
        for line, text, names in _at(node, source, house):
            found[line, text] = found.get((line, text), frozenset()) | names
    return sorted((line, text, names) for (line, text), names in found.items())


def _at(node: ast.AST, source: Source, house: Typed) -> Iterator[Reach]:
    """What one expression, or one pattern, takes out of a part."""
    match node:
        case ast.Attribute(value=outer, attr=name):
            given = house.of(source, node)
        case ast.Call(func=ast.Attribute(value=outer, attr=name)):
            given = house.of(source, node)
        case ast.Call(func=ast.Name("getattr" | "vars"), args=[outer, *more]):
            given, name = None, "__dict__"
            if more and isinstance(more[0], ast.Constant):
                name = str(more[0].value)
        case ast.MatchClass(cls=outer, kwd_attrs=names):
            for each in names:
                for owner in _made(house.of(source, outer)):
                    yield from _taken(owner, each, None, node, source)
            return
        case _:
            return
    if not (isinstance(outer, ast.Name) and outer.id in ("self", "cls")):
        for owner in house.classes(source, outer):
            yield from _taken(owner, name, given, node, source)


def _taken(
    owner: nodes.TypeInfo,
    name: str,
    given: types.ProperType | None,
    node: ast.expr | ast.pattern,
    source: Source,
) -> Iterator[Reach]:
    """What a member of a part gives, if that is, holds or returns a part."""
    own = owner.module_name == source.module and not owner.is_protocol
    if own or not _is_part(owner):
        return
    symbol = owner.get(name)
    kind = given or (None if symbol is None else symbol.type)
    found = [each for each in _given_by(kind) if _is_part(each)]
    if found or name == "__dict__":
        lines = [each.name for part in (owner, *found) for each in part.mro]
        members = [f"{each.name}.{name}" for each in owner.mro]
        text = ast.unparse(node)
        yield node.lineno, text, frozenset([*lines, *members]) - {"object", "Protocol"}


def _given_by(kind: types.Type | None) -> Iterator[nodes.TypeInfo]:
    """The classes that a member holds, or returns when it is called."""
    match None if kind is None else types.get_proper_type(kind):
        case types.CallableType(ret_type=given):
            yield from contents(given)
        case types.Overloaded(items=items):
            for each in items:
                yield from contents(each.ret_type)
        case None:
            pass
        case other:
            yield from contents(other)


def _made(kind: types.ProperType | None) -> Iterator[nodes.TypeInfo]:
    """The class that a pattern names."""
    match kind:
        case types.CallableType(ret_type=made):
            yield from classes(made)
        case types.TypeType(item=made):
            yield from classes(made)
        case _:
            pass


@functools.cache
def _is_part(info: nodes.TypeInfo) -> bool:
    """Whether a class has behaviour, or attributes that have."""
    return _behaves(info, frozenset())


def _behaves(info: nodes.TypeInfo, asked: frozenset[nodes.TypeInfo]) -> bool:
    if not info.fullname.startswith(WITH_PARTS) or info in asked:
        return False
    data = info.is_enum or any(each.fullname in _DATA for each in info.mro)
    frozen = bool(info.metadata.get("dataclass", {}).get("frozen", False))
    for line in (each for each in info.mro if each.fullname.startswith("ackd.")):
        members = [each for each in line.names.values() if not each.plugin_generated]
        if not (data or frozen) and any(_is_method(each.node) for each in members):
            return True
        fields = [each.type for each in members if isinstance(each.node, nodes.Var) and each.type]
        if any(_behaves(one, asked | {info}) for kind in fields for one in classes(kind)):
            return True
    return False


def _is_method(node: nodes.SymbolNode | None) -> bool:
    """Whether this is something that others may ask an object to do."""
    match node:
        case nodes.Decorator(func=function):
            pass
        case nodes.FuncDef() as function:
            pass
        case nodes.OverloadedFuncDef():
            return not node.is_property
        case _:
            return False
    makes = function.is_property or function.is_class or function.is_static
    return not makes and (not function.name.startswith("_") or function.name == "__call__")
