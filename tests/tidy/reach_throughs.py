"""Nobody goes through a part that it was given to the parts of that part.

A class of the engine gets what it works with, or asks the part that it was given. This check reads
the annotations, and so knows which attributes are parts: objects with behaviour, or bags of them.
Values are none. What a module made itself it may look into.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Sequence

from tests.tidy.sources import Function, Source

ENGINE = "ackd.engine"
WITH_PARTS = (ENGINE, "ackd.core.ledger")
"""Packages whose classes are looked at; those of others are what a part works with."""
OPEN: dict[str, str] = {
    "Context": "what every part is given anyway",
    "SubscriptionState": "what every part of a subscription is given anyway",
    "Signals": "the signals of the state, for whoever has something to tell",
    "Partition.ledger": "what a partition is to its readers: passing on each question is a wall",
    "Partition.copies": "as its ledger: notes on the copies of its messages",
    "Partition.tracing": "as its ledger: the spans of its messages, if traces are on",
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
"""Classes, or attributes of a class (`Class.attribute`), that anybody may go through, and why."""
ROOTS: dict[str, str] = {
    "ackd.engine.subscription": "builds the parts, and hands parts of them to others",
}
"""Modules that may take parts out of others, and why."""
_VALUES = frozenset({"Enum", "IntEnum", "StrEnum", "IntFlag", "NamedTuple", "Struct", "TypedDict"})
_MAPPINGS = frozenset(
    {"dict", "Mapping", "MutableMapping", "OrderedDict", "WeakKeyDictionary", "ByName"}
)
_ROWS = frozenset(
    {"list", "tuple", "set", "frozenset", "deque"}
    | {"Sequence", "Iterable", "Iterator", "Collection", "AsyncIterator"}
)
_SAME = frozenset({"list", "tuple", "set", "sorted", "reversed"})
"""Functions that give back what is in their argument."""
Scope = dict[str, ast.expr]
"""Names of a function, and the annotation of each that has a known one."""


def reach_throughs(sources: Iterable[Source]) -> Iterator[str]:
    """Code of the engine that takes a part out of a part it was given."""
    house = House(sources)
    for source in house.engine():
        if source.module not in ROOTS:
            for line, text in sorted(house.reached(source)):
                yield f"{source.path}:{line}: {text} reaches through a part to a part of it"


def reach_throughs_needlessly_open(sources: Iterable[Source]) -> Iterator[str]:
    """What anybody may go through, and nobody does; modules that may reach, and do not."""
    house = House(sources)
    reach = {source.module for source in house.engine() if [*house.reached(source)]}
    for name in sorted(OPEN.keys() - house.gone_through):
        yield f"{name}: nobody goes through it"
    for module in sorted(ROOTS.keys() - reach):
        yield f"{module}: it takes no part out of another"


class House:
    """The classes of the engine by name, and what their attributes are."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = [each for each in sources if each.module.startswith(WITH_PARTS)]
        self._classes: dict[str, ast.ClassDef] = {}
        self._modules: dict[str, str] = {}
        self._results: dict[str, ast.expr] = {}
        for source in self.sources:
            for node in source.tree.body:
                if isinstance(node, ast.ClassDef):
                    self._classes[node.name] = node
                    self._modules[node.name] = source.module
                elif isinstance(node, Function) and node.returns is not None:
                    self._results[node.name] = node.returns
        self.gone_through: set[str] = set()
        """What of `OPEN` somebody has gone through."""
        self._attributes: dict[tuple[str, str], ast.expr | None] = {}
        self._parts: dict[str, bool] = {}
        self._scopes: dict[Function, Scope] = {}

    # --- what is reached

    def engine(self) -> list[Source]:
        """The modules that are looked at."""
        return [each for each in self.sources if each.module.startswith(ENGINE)]

    def reached(self, source: Source) -> Iterator[tuple[int, str]]:
        """(line, text) of each part that a module takes out of another."""
        for function, inside in _functions(source.tree):
            scope = self._scope(function, inside)
            for node in _nodes(function):
                if isinstance(node, ast.Attribute) and self._is_reached(node, scope, source):
                    yield node.lineno, ast.unparse(node)

    def _is_reached(self, node: ast.Attribute, scope: Scope, source: Source) -> bool:
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return False
        given = self._class_of(self._type_of(node.value, scope))
        if not self._is_part(given) or self._is_own(given, source):
            return False
        found, line = self._class_of(self._type_of(node, scope)), [*self._line(given)]
        names = {found, *line, *(f"{each}.{node.attr}" for each in line)}
        if not self._is_part(found):
            return False
        self.gone_through |= names & OPEN.keys()
        return not names & OPEN.keys()

    def _is_own(self, name: str, source: Source) -> bool:
        """Whether the module made it; its protocols describe what others made."""
        return self._modules[name] == source.module and not _is_protocol(self._classes[name])

    def _is_part(self, name: str) -> bool:
        if name not in self._parts:
            self._parts[name] = False  # while its attributes are looked at
            self._parts[name] = name in self._classes and self._behaves(name)
        return self._parts[name]

    def _behaves(self, name: str) -> bool:
        """Whether a class has behaviour, or attributes that have."""
        for each in self._line(name):
            node = self._classes[each]
            words = {_last(base) for base in node.bases}
            frozen = any("frozen=True" in ast.unparse(mark) for mark in node.decorator_list)
            if not (words & _VALUES or frozen) and any(map(_is_method, node.body)):
                return True
            if any(self._is_part(self._class_of(kind)) for kind in _declared(node).values()):
                return True
        return False

    # --- what something is

    def _line(self, name: str) -> Iterator[str]:
        """A class and those that it is made from."""
        if name in self._classes:
            yield name
            for base in self._classes[name].bases:
                yield from self._line(_last(base))

    def _class_of(self, kind: ast.expr | None) -> str:
        """The name of the class that an annotation names; empty when it is none of ours."""
        for each in _either(kind):
            if _last(each) in self._classes:
                return _last(each)
        return ""

    def _scope(self, function: Function, inside: Sequence[ast.AST]) -> Scope:
        """Names of a function: its own, and those of what it stands in."""
        if function not in self._scopes:
            self._scopes[function] = {}  # while its names are looked at
            self._scopes[function] = self._names(function, inside)
        return self._scopes[function]

    def _names(self, function: Function, inside: Sequence[ast.AST]) -> Scope:
        scope: Scope = {}
        for each in (*inside, function):
            if isinstance(each, ast.ClassDef):
                scope = {"self": ast.Name(each.name), "cls": ast.Name(each.name)}
                continue
            if isinstance(each, Function):
                scope |= _arguments(each)
                for _ in range(3):  # a name may depend on one that is found later
                    for target, value in _named(each):
                        self._name(target, value, scope)
        return scope

    def _name(self, target: ast.expr, kind: ast.expr, scope: Scope) -> None:
        found = kind.value if isinstance(kind, ast.Starred) else self._type_of(kind, scope)
        if isinstance(kind, ast.Starred):  # each of these
            found = _element(self._type_of(kind.value, scope))
        self._bind(target, found, scope)

    def _bind(self, target: ast.expr, kind: ast.expr | None, scope: Scope) -> None:
        if isinstance(target, ast.Name) and kind is not None:
            scope.setdefault(target.id, kind)
        elif isinstance(target, ast.Tuple) and isinstance(kind, ast.Subscript):
            inner = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else []
            for part, each in zip(target.elts, inner, strict=False):
                self._bind(part, each, scope)

    def _type_of(self, node: ast.expr, scope: Scope) -> ast.expr | None:
        """The annotation of an expression, as far as it is known."""
        match node:
            case ast.Name(id=name):
                return scope.get(name)
            case ast.Attribute(value=inner, attr=attr):
                return self._attribute(self._class_of(self._type_of(inner, scope)), attr)
            case ast.Call(func=function, args=arguments):
                return self._result(function, arguments, scope)
            case ast.Subscript(value=inner, slice=place):
                whole = self._type_of(inner, scope)
                return whole if isinstance(place, ast.Slice) else _content(whole)
            case ast.Await(value=inner) | ast.NamedExpr(value=inner):
                return self._type_of(inner, scope)
            case ast.IfExp(body=one, orelse=other):
                return self._type_of(one, scope) or self._type_of(other, scope)
            case ast.BoolOp(values=values):
                found = (self._type_of(each, scope) for each in values)
                return next(filter(None, found), None)
            case _:
                return self._made(node, scope)

    def _made(self, node: ast.expr, scope: Scope) -> ast.expr | None:
        """The annotation of a list or a tuple that is written down."""
        match node:
            case ast.ListComp(elt=inner) | ast.List(elts=[inner, *_]):
                kind = self._type_of(inner, scope)
                return None if kind is None else _rows(kind)
            case ast.Tuple(elts=elts):
                kinds = [self._type_of(each, scope) or ast.Constant(None) for each in elts]
                return ast.Subscript(ast.Name("tuple"), ast.Tuple(kinds))
            case _:
                return None

    def _result(
        self, function: ast.expr, arguments: Sequence[ast.expr], scope: Scope
    ) -> ast.expr | None:
        if isinstance(function, ast.Name) and function.id not in scope:
            if function.id in _SAME and arguments:
                return self._type_of(arguments[0], scope)
            if function.id in self._classes:
                return function
            return self._results.get(function.id)
        if isinstance(function, ast.Attribute):
            given = self._type_of(function.value, scope)
            if _last(given) in _MAPPINGS:
                return _of_mapping(given, function.attr)
            for name in self._line(self._class_of(given)):
                for each in self._classes[name].body:
                    if isinstance(each, Function) and each.name == function.attr:
                        return each.returns
        called = self._type_of(function, scope)
        if isinstance(called, ast.Subscript):  # Callable[[...], result], type[result]
            inner = called.slice
            return inner.elts[-1] if isinstance(inner, ast.Tuple) else inner
        return None

    def _attribute(self, name: str, attr: str) -> ast.expr | None:
        for each in self._line(name):
            if (each, attr) not in self._attributes:
                self._attributes[each, attr] = None  # while it is looked for
                self._attributes[each, attr] = self._find(self._classes[each], attr)
            if (found := self._attributes[each, attr]) is not None:
                return found
        return None

    def _find(self, node: ast.ClassDef, attr: str) -> ast.expr | None:
        """What an attribute of a class is: as declared, else as set by a method."""
        declared = _declared(node)
        if attr in declared:
            return declared[attr]
        for method in (each for each in node.body if isinstance(each, Function)):
            for target, value in _named(method):
                match target:
                    case ast.Attribute(ast.Name("self"), name) if name == attr:
                        kind = self._type_of(value, self._scope(method, [node]))
                        if kind is not None:
                            return kind
                    case _:
                        pass
        return None


# --- reading a tree


def _functions(
    node: ast.AST, inside: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[Function, tuple[ast.AST, ...]]]:
    """Every function, and the classes and functions that it stands in."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, Function):
            yield each, inside
        deeper = isinstance(each, Function | ast.ClassDef)
        yield from _functions(each, (*inside, each) if deeper else inside)


def _nodes(function: Function) -> Iterator[ast.AST]:
    """What stands in a function, without functions in it."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if not isinstance(node, Function):
            yield node
            left += ast.iter_child_nodes(node)


@functools.cache
def _named(function: Function) -> Sequence[tuple[ast.expr, ast.expr]]:
    """(target, value) of everything that gets a name; a starred value: each of it."""
    return list(_names_given(function))


def _names_given(function: Function) -> Iterator[tuple[ast.expr, ast.expr]]:
    nodes = [each for each in _nodes(function) if isinstance(each, ast.stmt | ast.expr)]
    for node in sorted(nodes, key=lambda each: (each.lineno, each.col_offset)):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield target, value
            case ast.NamedExpr(target=target, value=value):
                yield target, value
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                yield target, ast.Starred(value)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for each in node.generators:
                    yield each.target, ast.Starred(each.iter)
            case _:
                pass


def _arguments(function: Function) -> Scope:
    arguments = function.args
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    found = {each.arg: _read(each.annotation) for each in named if each.annotation is not None}
    for node in _nodes(function):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                found.setdefault(name, _read(kind))
            case _:
                pass
    return found


def _declared(node: ast.ClassDef) -> Scope:
    """Attributes that a class annotates: fields, properties, and those of its own object."""
    found: Scope = {}
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            found[ast.unparse(each.target)] = _read(each.annotation)
        elif isinstance(each, Function):
            if _is_property(each) and each.returns is not None:
                found[each.name] = _read(each.returns)
            for inner in _nodes(each):
                match inner:
                    case ast.AnnAssign(ast.Attribute(ast.Name("self"), name), kind):
                        found[name] = _read(kind)
                    case _:
                        pass
    return found


def _is_property(function: Function) -> bool:
    marks = {_last(each) for each in function.decorator_list}
    return bool(marks & {"property", "cached_property"})


def _is_method(node: ast.AST) -> bool:
    """Whether this is something that others may ask an object to do."""
    if not isinstance(node, Function) or _is_property(node):
        return False
    makes = {_last(each) for each in node.decorator_list} & {"classmethod", "staticmethod"}
    return not makes and (not node.name.startswith("_") or node.name == "__call__")


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(_last(base) == "Protocol" for base in node.bases)


# --- reading an annotation


def _read(kind: ast.expr) -> ast.expr:
    """An annotation that is written as a text, read."""
    if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
        return ast.parse(kind.value, mode="eval").body
    return kind


def _either(kind: ast.expr | None) -> Iterator[ast.expr]:
    """The alternatives of an annotation."""
    if isinstance(kind, ast.BinOp):
        yield from _either(kind.left)
        yield from _either(kind.right)
    elif kind is not None:
        yield kind


def _last(kind: ast.expr | None) -> str:
    """The name of what an annotation, a base or a decorator names."""
    match kind:
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return _last(inner)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.BinOp():
            return next((_last(each) for each in _either(kind) if _last(each)), "")
        case _:
            return ""


def _rows(kind: ast.expr) -> ast.expr:
    return ast.Subscript(ast.Name("list"), kind)


def _content(kind: ast.expr | None) -> ast.expr | None:
    """What a container holds; of a mapping: its values."""
    for each in _either(kind):
        if isinstance(each, ast.Subscript):
            inner = each.slice.elts if isinstance(each.slice, ast.Tuple) else [each.slice]
            if inner and _last(each) in _MAPPINGS | _ROWS:
                return inner[-1 if _last(each) in _MAPPINGS else 0]
    return None


def _element(kind: ast.expr | None) -> ast.expr | None:
    """What a loop over a container gets."""
    return None if _last(kind) in _MAPPINGS else _content(kind)


def _of_mapping(kind: ast.expr | None, method: str) -> ast.expr | None:
    """What a method of a mapping gives."""
    value = _content(kind)
    if value is None or not isinstance(kind, ast.Subscript):
        return None
    if method == "values":
        return _rows(value)
    if method == "items":
        key = kind.slice.elts[0] if isinstance(kind.slice, ast.Tuple) else ast.Name("str")
        return _rows(ast.Subscript(ast.Name("tuple"), ast.Tuple([key, value])))
    return value if method in {"get", "pop", "setdefault"} else None
