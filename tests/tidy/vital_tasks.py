"""A task whose end would stop messages is reported when it ends: its `Tasks` has `vitals`.

Where `Tasks` has none, every task is started with `vital=False`: somebody has decided that a
sidecar works as well without it.
"""

import ast
from collections.abc import Iterable, Iterator

from tests.tidy.sources import Source


def vital_tasks(sources: Iterable[Source]) -> Iterator[str]:
    """Starts of tasks whose end nobody would notice."""
    for source in sources:
        if source.shipped and source.module.startswith("ackd."):
            yield from _unnoticed(source)


def _unnoticed(source: Source) -> Iterator[str]:
    for part in ast.walk(source.tree):
        if not isinstance(part, ast.ClassDef):
            continue
        calls = [each for each in ast.walk(part) if isinstance(each, ast.Call)]
        if not any(ast.unparse(each.func) == "Tasks" and _alone(each) for each in calls):
            continue
        for call in calls:
            vital = next((each.value for each in call.keywords if each.arg == "vital"), None)
            decided = isinstance(vital, ast.Constant) and vital.value is False
            if ast.unparse(call.func) == "self._tasks.start" and not decided:
                yield f"{source.path}:{call.lineno}: nobody notices when this task ends"


def _alone(call: ast.Call) -> bool:
    """Whether nobody is told of the ends of its tasks."""
    return len(call.args) + len(call.keywords) < 2
