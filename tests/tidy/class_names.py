"""Names of classes: one name, one thing.

Every class of the product counts: private ones (their underscore apart), nested ones, those of the
tools. Two may share a name only by an exception with a reason.
"""

import ast
from collections.abc import Iterable, Iterator

from tests.tidy.sources import Source

SAME_NAME: dict[str, str] = {
    "Published": "as in the OpenAPI document",
    "Stored": "as in the OpenAPI document",
}
"""Names that two classes of one program may have, and why."""
SAME_NAME_ELSEWHERE: dict[str, str] = {
    "Admin": "Pulsar's word for its admin interface; the command's client of ours",
    "Connection": "what each side of the sidecar connects by",
    "Delivery": "a message on its way; the engine's has a lease, an adapter's has none yet",
    "Done": "what a `Revoked` calls: the port's protocol, and what an adapter gives it",
    "Groups": "the local broker's own groups; the port asks a broker for its groups",
    "Ledger": "Pulsar's word for a piece of a topic's log; ours is the engine's",
    "Member": "each broker has groups with members, and so has the store",
    "Plan": "the local broker's of an assignment; what `ackd adopt` would do",
    "Position": "Pulsar's, in its ledgers; ours is an offset",
    "Positions": "each adapter reads and writes those of its broker",
    "Publisher": "each adapter sends in its way; the engine has one for each broker",
    "Reading": "each adapter reads in its way; a connection of HTTP is read too",
    "Server": "Redis as the example's broker; ours of HTTP",
    "Session": "RocketMQ's word for its stream; the local broker's fetch",
    "Signals": "what a loop tells others: the writer's thread, a subscription's tasks",
    "Topic": "a row of each broker's topics",
    "Topics": "the local broker's question; what a subscription knows of its topics",
}
"""Names that classes of two programs may have, and why. They are all an adapter's."""


def class_names(sources: Iterable[Source]) -> Iterator[str]:
    """Classes with a name that another one has, without an exception for it."""
    for name, holders in _holders(sources).items():
        for number, (source, line) in enumerate(holders):
            for other, _ in holders[:number]:
                one = _program(other.module) == _program(source.module)
                if name not in (SAME_NAME if one else SAME_NAME_ELSEWHERE):
                    yield f"{source.path}:{line}: {name} is a class of {other.module} too"
                    break


def class_names_needlessly_shared(sources: Iterable[Source]) -> Iterator[str]:
    """Exceptions of `class_names` that nothing needs any more."""
    holders = _holders(sources)
    for name in (*SAME_NAME, *SAME_NAME_ELSEWHERE):
        programs = [_program(source.module) for source, _ in holders.get(name, [])]
        one = len(programs) > len(set(programs))
        if name in SAME_NAME and not one:
            yield f"{name}: one class of a program has it"
        if name in SAME_NAME_ELSEWHERE and len(set(programs)) < 2:
            yield f"{name}: one program has it"


def _holders(sources: Iterable[Source]) -> dict[str, list[tuple[Source, int]]]:
    """Name without underscores -> (file, line) of the classes of that name."""
    found: dict[str, list[tuple[Source, int]]] = {}
    for source in sources:
        if source.shipped:
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name.strip("_"), []).append((source, node.lineno))
    return found


def _program(module: str) -> str:
    """The adapter that a module is of, else its package: what shares its words."""
    package, _, rest = module.partition(".")
    return f"{package}.{rest.partition('.')[0]}" if package == "ackd_adapters" else package
