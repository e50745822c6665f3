"""Bounds of size, annotations, docstrings and dead modules: each check yields its complaints.

A bound can be broken once, with a reason in place: `# tidy: long-file -- why` anywhere in the file,
`# tidy: long-function -- why` on the line of its `def`.
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


CLASS_LINES_MAX = 350
PUBLIC_METHODS_MAX = 20
ATTRIBUTES_MAX = 12


def class_size(sources: Iterable[Source]) -> Iterator[str]:
    """Classes of the product with more than one job: too long, too many methods or attributes.

    Protocols and properties do not count. `# tidy: long-class -- why` on the line above breaks it.
    """
    for source in sources:
        for node in ast.walk(source.tree):
            if not source.shipped or not isinstance(node, ast.ClassDef):
                continue
            sizes = (
                ("lines", (node.end_lineno or 0) - node.lineno + 1, CLASS_LINES_MAX),
                ("public methods", len(list(_public_methods(node))), PUBLIC_METHODS_MAX),
                ("attributes", len(set(_attributes(node))), ATTRIBUTES_MAX),
            )
            above = source.line(max(node.lineno - 1, 1))
            for what, count, most in sizes:
                if count > most and not re.search(_REASON.format("long-class"), above):
                    where = f"{source.path}:{node.lineno}: {node.name}"
                    yield f"{where} has {count} {what}; at most {most}"


def _public_methods(node: ast.ClassDef) -> Iterator[str]:
    if any(ast.unparse(base) == "Protocol" for base in node.bases):
        return
    for each in node.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not each.name.startswith("_") and not each.decorator_list:
            yield each.name


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    """What `__init__` sets on itself."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            for part in ast.walk(each):
                if not isinstance(part, ast.Attribute) or not isinstance(part.ctx, ast.Store):
                    continue
                if ast.unparse(part.value) == "self":
                    yield part.attr


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


SAME_NAME: dict[str, str] = {
    "MessageBody": "as in the OpenAPI document",
    "Published": "as in the OpenAPI document",
    "Stored": "as in the OpenAPI document",
}
"""Names that two classes may have, and why."""
ONE_PROGRAM = ("ackd.", "ackd_top.")
"""The others share no code with the sidecar, so its names are free for them."""


def class_names(sources: Iterable[Source]) -> Iterator[str]:
    """Two public classes of the sidecar with one name: one name is for one thing."""
    found: dict[str, Source] = {}
    for source in sources:
        if not source.module.startswith(ONE_PROGRAM):
            continue
        for node in source.tree.body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            other = found.setdefault(node.name, source)
            if other is not source and node.name not in SAME_NAME:
                yield f"{source.path}:{node.lineno}: {node.name} is a class of {other.module} too"


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
