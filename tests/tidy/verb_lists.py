"""Settle verbs stand in one table, `core/record/settles.py`: nobody keeps a list beside it."""

import ast
from collections.abc import Iterable, Iterator

from ackd.core.record.settles import SETTLES
from tests.tidy.sources import Source

OF_THE_CORE = (
    "ackd.core.record.settles",
    "ackd.core.record.transitions",
    # A verb's own members of a request.
    "ackd.http.formats.model",
    # What a phase looks like, whichever verb led there.
    "ackd.core.record.copies",
    # They share no code with what they judge.
    "ackd_torture",
    "ackd_demo",
    "ackd_reports",
)
FROM = 3
"""A collection that names so many of the verbs is a list of verbs."""
_RULES = SETTLES.values()
_VERBS = {rule.do.name for rule in _RULES}
_WORDS = {rule.do.value for rule in _RULES}
_NAMES = {
    "SettleVerb": _VERBS,
    "Verb": _VERBS,
    "CoreVerb": _VERBS,
    "Outcome": {rule.outcome.name for rule in _RULES},
    "Status": {rule.status.name for rule in _RULES},
}


def verb_lists(sources: Iterable[Source]) -> Iterator[str]:
    """Collections and `match` statements that name settle verbs, or their outcomes, one by one."""
    for source in sources:
        if not source.shipped or source.module.startswith(OF_THE_CORE):
            continue
        for node in ast.walk(source.tree):
            match node:
                case ast.Tuple(parts) | ast.List(parts) | ast.Set(parts):
                    verbs = _named(parts)
                case ast.Dict(keys, values):
                    verbs = max(_named(keys), _named(values), key=len)
                case ast.Match(_, cases):
                    patterns = (each.pattern for each in cases)
                    verbs = _named(p.value for p in patterns if isinstance(p, ast.MatchValue))
                case _:
                    continue
            if len(verbs) >= FROM:
                yield f"{source.path}:{node.lineno}: a list of settle verbs: {sorted(verbs)}"


def _named(nodes: Iterable[ast.expr | None]) -> set[str]:
    """The verbs (or their outcomes) that these expressions are."""
    found = set()
    for node in nodes:
        match node:
            case ast.Attribute(ast.Name(kind), name) if name in _NAMES.get(kind, ()):
                found.add(name)
            case ast.Constant(str(word)) if word in _WORDS:
                found.add(word)
            case ast.Tuple(parts):
                found |= _named(parts[:1])
            case _:
                pass
    return found
