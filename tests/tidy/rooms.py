"""What a room of the engine says of itself is true: whom its head names, and whom it may ask.

The head is the docstring of its `__init__.py`; the sentence with "asks" names the rooms.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.tidy.dependence import ENGINE_PARTS
from tests.tidy.sources import Source

_ENGINE = "ackd.engine."
_ASKS = re.compile(r"\bIt [^.]*?\basks ([^.:]*)")
_NAME = re.compile(r"`(\w+)`")


def rooms(sources: Iterable[Source]) -> Iterator[str]:
    """Heads that name too many rooms or too few, and rooms that may be asked and are not."""
    heads: dict[str, Source] = {}
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        room, _, rest = source.module.removeprefix(_ENGINE).partition(".")
        if not source.shipped or not source.module.startswith(_ENGINE):
            continue
        if source.path.name == "__init__.py":
            heads[room] = source
        elif rest:
            asked[room] |= {other for other in _imported(source) if other != room}
    for room, source in heads.items():
        found = _ASKS.search(" ".join((ast.get_docstring(source.tree) or "").split()))
        named = set(_NAME.findall(found[1])) if found else set()
        for other in sorted(named ^ asked[room]):
            true = "it asks, and its head does not say so" if other in asked[room] else "not asked"
            yield f"{source.path}: {other}: {true}"
        may = {each.removeprefix(_ENGINE).split(".")[0] for each in ENGINE_PARTS[_ENGINE + room]}
        for other in sorted(may - asked[room]):
            yield f"tests/tidy/dependence.py: {room} may ask {other}, and does not"


def _imported(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_ENGINE):
            yield (node.module or "").removeprefix(_ENGINE).split(".")[0]
