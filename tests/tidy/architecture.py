"""Checks of ARCHITECTURE.md: its maps have every folder, and its walk names what there is."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.sources import Function, Source

_CODE = re.compile(r"`([^`\n]+)`")
_STEP = re.compile(r"`([^`\n]+)`(?:\s+\(`([^`\n]+)`\))?")
"""Code, and a file in brackets behind it."""


def section(text: str, heading: str) -> str:
    """The part of a page below this heading. Raises ValueError without such a heading."""
    _, found, rest = text.partition(f"\n## {heading}\n")
    if not found:
        message = f"no section {heading!r}"
        raise ValueError(message)
    return rest.partition("\n## ")[0]


def rows(part: str) -> list[str]:
    """The folders that a map's rows are about, in its order."""
    first = (line.split("|")[1] for line in part.splitlines() if line.startswith("| `"))
    return [code.rstrip("/") for cell in first for code in _CODE.findall(cell) if code[-1] == "/"]


def folders(root: Path) -> set[str]:
    """Packages directly below a folder."""
    return {path.parent.name for path in root.glob("*/__init__.py")}


def unknown_files(page: str, sources: Iterable[Source]) -> Iterator[str]:
    """Files of Python that a page names and that are not there."""
    paths = [source.path.as_posix() for source in sources]
    for code in _CODE.findall(page):
        if code.endswith(".py") and not _held_by(code, paths):
            yield code


def unknown_steps(walk: str, sources: Iterable[Source], scripts: Iterable[str]) -> Iterator[str]:
    """What a walk names and the code does not have: files, folders, classes, methods, functions.

    A name alone is a method of the class that was named last, or a function. A file behind it, in
    brackets, has it. `scripts`: paths of files that are not Python.
    """
    names: dict[str, set[str]] = {}
    for source in sources:
        for name in _defined(source):
            names.setdefault(name, set()).add(source.path.as_posix())
    paths = [*scripts, *{path for held in names.values() for path in held}]
    last = ""
    for code, where in _STEP.findall(walk):
        for place in (code, where):
            if _is_place(place) and not _held_by(place, paths):
                yield place
        if _is_place(code):
            continue
        full = f"{last}.{code}" if f"{last}.{code}" in names else code
        if full not in names:
            yield code
        elif _is_place(where) and not _held_by(where, names[full]):
            yield f"{code} ({where})"
        last = full.partition(".")[0] if full[0].isupper() else last


def _is_place(code: str) -> bool:
    return code.endswith(("/", ".py", ".lua"))


def _held_by(place: str, paths: Iterable[str]) -> bool:
    """Whether a file, or one in a folder, has one of these paths."""
    return any(
        f"/{place}" in path if place[-1] == "/" else path.endswith(f"/{place}") for path in paths
    )


def _defined(source: Source) -> Iterator[str]:
    """Classes, their methods, and functions."""
    yield from (each.name for each in source.tree.body if isinstance(each, Function))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
            yield from (
                f"{node.name}.{each.name}" for each in node.body if isinstance(each, Function)
            )
