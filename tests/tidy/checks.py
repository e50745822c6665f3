"""Bounds of size, annotations, docstrings and dead modules: each check yields its complaints.

A bound can be broken once, with a reason in place: `# tidy: long-file -- why` anywhere in the file,
`# tidy: long-function -- why` on the line of its `def`. A class: see `class_size`.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from tests.tidy.sources import PACKAGES, Function, Source

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
_REASON = r"# tidy: {} -- \S+"


def file_size(sources: Iterable[Source]) -> Iterator[str]:
    """Files of more than 600 lines."""
    for source in sources:
        lines = len(source.text.splitlines())
        if lines > FILE_LINES_MAX and not re.search(_REASON.format("long-file"), source.text):
            yield f"{source.path}: {lines} lines; at most {FILE_LINES_MAX}"


def function_size(sources: Iterable[Source]) -> Iterator[str]:
    """Functions of more than 70 lines, from `def` to the end."""
    for source in sources:
        for function in source.functions():
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            allowed = re.search(_REASON.format("long-function"), source.line(function.lineno))
            if lines > FUNCTION_LINES_MAX and not allowed:
                yield (
                    f"{source.path}:{function.lineno}: {function.name} has {lines} lines; "
                    f"at most {FUNCTION_LINES_MAX}"
                )


CLASS_MAX = {"lines": 350, "methods": 20, "attributes": 12}
"""What a class may have; methods are public ones, properties too."""
_CEILINGS = re.compile(r"# tidy: long-class((?: (?:lines|methods|attributes)=\d+)+) -- \S")


def class_size(sources: Iterable[Source]) -> Iterator[str]:
    """Classes of the product with more than one job: too long, too many methods or attributes.

    Attributes are what any method sets on the class's own object, and fields that it declares. Pure
    data (fields, properties and other ways to make one) may have as many as what it describes.

    `# tidy: long-class attributes=16 lines=400 -- why` on the line above the class, or above its
    decorators, moves these bounds. A bound that it moves without need is a complaint too.
    """
    for source in sources:
        for node in ast.walk(source.tree):
            if not source.shipped or not isinstance(node, ast.ClassDef):
                continue
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found = _CEILINGS.search(source.line(max(first - 1, 1)))
            moved = dict(each.split("=") for each in found[1].split()) if found else {}
            where = f"{source.path}:{node.lineno}: {node.name}"
            for what, count in _sizes(node).items():
                most = int(moved.get(what, CLASS_MAX[what]))
                if count > most:
                    yield f"{where} has {count} {what}; at most {most}"
                elif what in moved and count <= CLASS_MAX[what]:
                    yield f"{where} has {count} {what}; no need to allow {most}"


def _sizes(node: ast.ClassDef) -> dict[str, int]:
    """How much a class has of what is bounded."""
    methods = [each for each in node.body if isinstance(each, Function)]
    told = any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    public = {each.name for each in methods if not each.name.startswith("_")}
    data = all(_makes_or_reads(each) for each in methods)
    attributes = {*_fields(node), *(name for each in methods for name in _set_by(each))}
    return {
        "lines": (node.end_lineno or 0) - node.lineno + 1,
        "methods": 0 if told else len(public),
        "attributes": 0 if told or data else len(attributes),
    }


def _makes_or_reads(method: Function) -> bool:
    """Whether pure data may have this method."""
    names = {ast.unparse(each).rpartition(".")[2] for each in method.decorator_list}
    reads = {"property", "cached_property", "classmethod", "staticmethod"}
    return bool(names & reads) or method.name == "__post_init__"


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """What the body declares for each object."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation):
            yield ast.unparse(each.target)


def _set_by(method: Function) -> Iterator[str]:
    """What a method sets on its own object."""
    for part in ast.walk(method):
        match part:
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                yield name
            case _:
                pass


def annotated(sources: Iterable[Source]) -> Iterator[str]:
    """Parameters and results without an annotation."""
    for source in sources:
        for function in source.functions():
            for name in _bare(function):
                yield f"{source.path}:{function.lineno}: {function.name}: {name} has no annotation"


def _bare(function: Function) -> Iterator[str]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if positional and positional[0].arg in ("self", "cls"):
        positional = positional[1:]
    variable = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    for argument in [*positional, *arguments.kwonlyargs, *variable]:
        if argument.annotation is None:
            yield argument.arg
    if function.returns is None:
        yield "the result"


def module_docstring(sources: Iterable[Source]) -> Iterator[str]:
    """Files that do not say what they are for."""
    for source in sources:
        if source.text.strip() and ast.get_docstring(source.tree) is None:
            yield f"{source.path}: no docstring"


def any_in_ports(sources: Iterable[Source]) -> Iterator[str]:
    """`Any` in the ports: what two sides agree on must be said."""
    for source in sources:
        if source.module != "ackd.ports" and not source.module.startswith("ackd.ports."):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in (
                "Any",
                "typing.Any",
            ):
                yield f"{source.path}:{node.lineno}: Any in the ports"


def dead_modules(sources: Iterable[Source], entry_points: Iterable[str]) -> Iterator[str]:
    """Modules that nothing imports, that no entry point names and that nobody runs with -m.

    A module of the product must be used by the product; a test alone does not keep it alive (but
    for `ackd_testing`, which is for tests).
    """
    everything = list(sources)
    used = {False: set[str](), True: set[str]()}
    for source in everything:
        for _, name in source.imports():
            used[source.shipped].update(_prefixes(name))
        used[source.shipped].update(_named_in_strings(source))
    alive = used[True].union(*(_prefixes(name) for name in entry_points))
    for source in everything:
        name = source.path.name
        if name in ("__init__.py", "__main__.py", "conftest.py") or name.startswith("test_"):
            continue
        runnable = '__name__ == "__main__"' in source.text
        for_tests = not source.shipped or source.module.startswith("ackd_testing")
        users = alive | used[False] if for_tests else alive
        if source.module not in users and not (runnable and not source.shipped):
            yield f"{source.path}: nothing uses {source.module}"


def _prefixes(name: str) -> set[str]:
    parts = name.replace(":", ".").split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def _named_in_strings(source: Source) -> Iterator[str]:
    """Modules named in strings: fully, as importlib takes them, or by file, as a script is run."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"\w+\.py", node.value) and source.package:
                yield f"{source.package}.{node.value.removesuffix('.py')}"
            found = re.fullmatch(rf"({'|'.join((*PACKAGES, 'tests'))})(\.\w+)+", node.value)
            if found and node.value != source.module:
                yield node.value
