"""Names of files: two files of a distribution share a name only when they hold one concept."""

from collections.abc import Iterable, Iterator

from tests.tidy.sources import ROOTS, Source

CONCEPTS: dict[str, str] = {
    "app_health": "whether the application beside the sidecar is healthy",
    "broker": "one connection to a broker, as the engine sees it; each adapter has one",
    "cancel": "an operator cancels messages in flight: `ackd cancel`, and what carries it out",
    "circuit_breaker": "the circuit breaker: its rules in the core, its counts in the engine",
    "claims": "claims of retry copies: what the ledger knows of them, and who asks for them",
    "command": "the command of a tool, by which `ackd` starts it",
    "config": "the settings of one adapter",
    "consumer": "one subscription's side of a broker; each adapter has one",
    "control": "what operators change while a subscription runs: values, engine, routes",
    "dead_letters": "dead letters as operators see them: values, engine, routes",
    "dedup": "deduplication by key: its settings, and what looks keys up",
    "drain": "a sidecar stops delivering before it ends: `ackd drain`, and the engine's part",
    "errors": "what a broker's errors are to ackd; each adapter has its own",
    "foreign_delays": "delays that other clients gave to messages: ledger and partition",
    "lag": "progress of a subscription's partitions: `ackd lag`, and what it shows",
    "member": "one member of a broker's group; an adapter has one where the client lacks it",
    "message": "a message as a broker keeps it, and the way there from ackd's",
    "messages": "messages as front ends and operators see them: values, routes, `ackd messages`",
    "names": "names of topics at a broker, and patterns of them",
    "openapi": "the OpenAPI document: what makes it, and the command that prints it",
    "operations": "what is carried out on request: by a record, or by sidecars (`ackd operations`)",
    "outbox": "the outbox, from routes and engine to rules and store",
    "peers": "connections between sidecars: their settings, and what the engine asks of them",
    "positions": "a group's committed positions at a broker",
    "progress": "a group's progress for export, import and seek: values, routes, command",
    "publish": "publish a message: engine and route; each adapter does it in its way",
    "reading": "one session that reads a partition; an adapter has one where the client lacks it",
    "reference": "a page of `docs/reference`, made from the code beside it",
    "seek": "move a group's position: `ackd seek`, and what carries it out",
    "serve": "`ackd serve`: the command, and what it runs",
    "settle": "settles of leases: engine and route",
    "share": "which member should hold which partition, where the broker does not decide it",
    "store": "the store: what the engine asks of it, and `ackd store`",
    "subscription": "a subscription: its settings, and what builds its parts",
    "traces": "traces: their settings, and what collects spans",
}
"""Name -> the one thing that all files of this name of a distribution are about."""
_NAMELESS = ("__init__", "__main__")


def file_names(sources: Iterable[Source]) -> Iterator[str]:
    """Files of one distribution with one name, which `CONCEPTS` does not have."""
    for (_, name), holders in _holders(sources).items():
        if name not in CONCEPTS:
            for source in holders[1:]:
                yield f"{source.path}: {holders[0].module} has this name too"


def file_names_needlessly_shared(sources: Iterable[Source]) -> Iterator[str]:
    """Entries of `CONCEPTS` that nothing needs any more."""
    shared = {name for (_, name), holders in _holders(sources).items() if len(holders) > 1}
    yield from (f"{name}: no two files have it" for name in CONCEPTS if name not in shared)


def _holders(sources: Iterable[Source]) -> dict[tuple[str, str], list[Source]]:
    """(distribution, name) -> files of that name."""
    found: dict[tuple[str, str], list[Source]] = {}
    for source in sources:
        name = source.path.stem
        if source.shipped and name not in _NAMELESS:
            found.setdefault((_distribution(source.module), name), []).append(source)
    return found


def _distribution(module: str) -> str:
    """The folder of a distribution. Adapters count as one: each does the same for its broker."""
    package = module.partition(".")[0]
    root = next(root for root, packages in ROOTS.items() if package in packages)
    return "adapters" if root.startswith("adapters") else root
