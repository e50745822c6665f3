"""The Python files that the checks look at, parsed once."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOTS = {
    "sidecar": ("ackd",),
    "sidecar/tools": ("ackd_demo", "ackd_testing", "ackd_top", "ackd_torture"),
    "adapters": ("ackd_adapters",),
    "adapters/examples/redis_stream": ("ackd_redis_stream",),
    "spark_reports": ("ackd_reports",),
}
"""Source root (folder) -> packages in it."""

PACKAGES = tuple(package for packages in ROOTS.values() for package in packages)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file. `module` is its import name; `shipped` tells whether it is part of the product."""

    path: Path
    module: str
    text: str
    tree: ast.Module
    shipped: bool

    @property
    def package(self) -> str:
        """What a relative import starts from."""
        if self.path.name == "__init__.py":
            return self.module
        return self.module.rpartition(".")[0]

    def functions(self) -> Iterator[Function]:
        """All functions and methods, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, full name) of everything imported; `from a import b` gives a.b, and
        `import_module("a.b")` too.
        """
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(
                    ast.Name("import_module") | ast.Attribute(attr="import_module"),
                    [ast.Constant(str(name)), *_],
                ):
                    yield node.lineno, name
                case _:
                    pass
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = self.package.split(".")
                    kept = parts[: len(parts) - node.level + 1]
                    base = ".".join([*kept, *([base] if base else [])])
                for alias in node.names:
                    yield node.lineno, f"{base}.{alias.name}"

    def line(self, number: int) -> str:
        """One line of the text, counted from 1."""
        return self.text.splitlines()[number - 1]


def read_sources(repo: Path) -> list[Source]:
    """All Python files of the source roots and of tests, in a fixed order."""
    found: list[Source] = []
    for root, packages in ROOTS.items():
        for package in packages:
            paths = sorted((repo / root / package).rglob("*.py"))
            paths = [path for path in paths if not path.stem.endswith("_pb2")]  # generated
            found += [_read(path, repo / root, shipped=True) for path in paths]
    paths = sorted((repo / "tests").rglob("*.py"))
    found += [_read(path, repo, shipped=False) for path in paths]
    return found


def _read(path: Path, base: Path, *, shipped: bool) -> Source:
    parts = list(path.relative_to(base).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    text = path.read_text()
    return Source(path, ".".join(parts), text, ast.parse(text, str(path)), shipped)
