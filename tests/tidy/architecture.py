"""Checks of ARCHITECTURE.md: its maps have every folder, and its walk names what there is."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.sources import Function, Source

_CODE = re.compile(r"`([^`\n]+)`")
_METHOD = re.compile(r"[A-Z]\w+\.\w+")
_FILE = re.compile(r"[\w/]+\.py")


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


def unknown_steps(walk: str, sources: Iterable[Source]) -> Iterator[str]:
    """Methods (`Class.method`) and files of a walk that are not in the code."""
    paths: list[str] = []
    methods: set[str] = set()
    for source in sources:
        paths.append(source.path.as_posix())
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                methods |= {
                    f"{node.name}.{each.name}" for each in node.body if isinstance(each, Function)
                }
    for code in _CODE.findall(walk):
        if _METHOD.fullmatch(code) and code not in methods:
            yield code
        if _FILE.fullmatch(code) and not any(path.endswith(f"/{code}") for path in paths):
            yield code
