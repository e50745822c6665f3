"""Unit tests of the engine: each of its modules that is more than a few lines has a file of them.

The file lies in the same folder and has the module's name: `engine/retry/claims.py` is tested by
`tests/unit/engine/retry/test_claims.py`, or by a `test_claims_MORE.py`. A long module needs several
tests: one alone would let any long class pass.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.tidy.sources import Source

UNTESTED_LINES_MAX = 60
"""Lines of code; a smaller part is shown well enough by the tests of those that use it."""
LINES_A_TEST_MAX = 60
_ENGINE = "ackd.engine."
_TESTS = "tests.unit.engine."


def engine_tests(sources: Iterable[Source]) -> Iterator[str]:
    """Modules of the engine of more than 60 lines of code with fewer unit tests of their own than
    one for 60 lines.
    """
    read = list(sources)
    modules = {
        each.module.removeprefix(_ENGINE): each
        for each in read
        if each.shipped and each.module.startswith(_ENGINE) and each.path.name != "__init__.py"
    }
    tests: Counter[str] = Counter()
    for each in read:
        if each.module.startswith(_TESTS):
            tests[_tested_by(each.module.removeprefix(_TESTS), modules)] += _tests_in(each)
    for name, source in modules.items():
        lines = code_lines(source)
        if lines > UNTESTED_LINES_MAX and tests[name] * LINES_A_TEST_MAX < lines:
            folder, _, last = name.rpartition(".")
            file = "/".join(["tests/unit/engine", *folder.split(".")]).rstrip("/")
            found = f"{tests[name]} tests in {file}/test_{last}*.py"
            yield f"{source.path}: {lines} lines of code, and {found}"


def _tests_in(source: Source) -> int:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (each for each in ast.walk(source.tree) if isinstance(each, functions))
    return sum(each.name.startswith("test_") for each in found)


def _tested_by(test: str, modules: Iterable[str]) -> str:
    """The module that a file of tests is about: of several whose names fit, the longest."""
    folder, _, last = test.rpartition(".")
    start = f"{folder}." if folder else ""
    subject = start + last.removeprefix("test_")
    fits = [each for each in modules if subject == each or subject.startswith(f"{each}_")]
    return max(fits, key=len, default="") if last.startswith("test_") else ""


def code_lines(source: Source) -> int:
    """Count the lines that are neither blank nor comment nor part of a docstring."""
    texts = {
        line
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(source.text.splitlines(), 1)
    return sum(
        number not in texts and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in lines
    )
