"""Who may import whom. The rule is data, so that a change of the architecture is a change here."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from tests.tidy.sources import PACKAGES, Source

BASE = (
    *("ackd.core", "ackd.errors", "ackd.hidden", "ackd.options", "ackd.ports"),
    "ackd.unreadable",
)

ENGINE = (*BASE, "ackd.retries", "ackd.api", "ackd.config", "ackd.telemetry", "ackd.store")

ENGINE_PARTS: dict[str, tuple[str, ...]] = {
    # What everybody is given. It asks nobody.
    "ackd.engine.base": (),
    # One owned partition: ledger, record and bodies.
    "ackd.engine.partition": ("ackd.engine.base",),
    # Which topics are ackd's own, so that nobody else writes there, the retry room knows.
    "ackd.engine.publishing": ("ackd.engine.base", "ackd.engine.retry.own_topic"),
    # Who the other sidecars are; not what is done about it.
    "ackd.engine.cluster": ("ackd.engine.base", "ackd.engine.partition"),
    "ackd.engine.tracing": ("ackd.engine.base", "ackd.engine.partition"),
    "ackd.engine.retry": ("ackd.engine.base", "ackd.engine.partition"),
    "ackd.engine.settlement": ("ackd.engine.base", "ackd.engine.partition"),
    "ackd.engine.ownership": (
        "ackd.engine.base",
        "ackd.engine.partition",
        "ackd.engine.cluster",
        "ackd.engine.retry",
    ),
    "ackd.engine.delivery": (
        "ackd.engine.base",
        "ackd.engine.partition",
        "ackd.engine.cluster",
        "ackd.engine.retry",
        "ackd.engine.settlement",
    ),
    # Messages from any sidecar: receives wait at other owners, and theirs here.
    "ackd.engine.peers": (
        "ackd.engine.base",
        "ackd.engine.cluster",
        "ackd.engine.settlement",
        "ackd.engine.delivery",
    ),
    # Looks at everything that runs, and changes it while it does.
    "ackd.engine.control": (
        "ackd.engine.base",
        "ackd.engine.partition",
        "ackd.engine.cluster",
        "ackd.engine.retry",
        "ackd.engine.settlement.whereabouts",
        "ackd.engine.ownership",
        "ackd.engine.delivery",
    ),
    "ackd.engine.operations": (
        "ackd.engine.base",
        "ackd.engine.partition",
        "ackd.engine.cluster",
        "ackd.engine.retry",
        "ackd.engine.ownership",
        "ackd.engine.control",
    ),
    # The composition roots: the only files that know all parts.
    "ackd.engine.parts_by_name": ("ackd.engine",),
    "ackd.engine.subscription": ("ackd.engine",),
    "ackd.engine.drain": ("ackd.engine",),
    "ackd.engine.departure": ("ackd.engine",),
    "ackd.engine.runtime": ("ackd.engine",),
}
"""A room of the engine -> the rooms that it may know. Imports for types alone count as well."""

ALLOWED: dict[str, tuple[str, ...]] = {
    "ackd": (),
    "ackd.core": (),
    "ackd.errors": (),
    "ackd.hidden": (),
    "ackd.options": (),
    # What a decoder raises for bytes of somebody else.
    "ackd.unreadable": (),
    "ackd.ports": ("ackd.core", "ackd.errors", "ackd.options"),
    # The loop of tenacity with our waits.
    "ackd.retries": ("ackd.core.backoff",),
    # What can be asked of a running sidecar: values and protocols, shared by engine, HTTP and push.
    "ackd.api": (
        "ackd.core.ids",
        "ackd.core.origin",
        "ackd.core.record.settles",
        "ackd.errors",
        "ackd.ports",
    ),
    "ackd.config": BASE,
    "ackd.telemetry": (*BASE, "ackd.config"),
    "ackd.store": (*BASE, "ackd.config", "ackd.telemetry"),
    "ackd.engine": (),
    **{part: (*ENGINE, *others) for part, others in ENGINE_PARTS.items()},
    # It asks the engine through `ackd.api`; what it shares with it is how tasks are kept.
    "ackd.http": (*BASE, "ackd.api", "ackd.config", "ackd.telemetry", "ackd.engine.base.tasks"),
    # Another protocol in front of the same engine, on the same server.
    "ackd.sqs": (*BASE, "ackd.api", "ackd.config", "ackd.http", "ackd.telemetry"),
    # A client beside the server: what it may share with that is how a message looks in bytes.
    "ackd.push": (
        *BASE,
        "ackd.api",
        "ackd.config",
        "ackd.telemetry",
        "ackd.engine.base.tasks",
        "ackd.http.formats.cloudevents",
        "ackd.http.formats.delivery_json",
        "ackd.http.formats.model",
        "ackd.http.formats.negotiation",
        "ackd.http.formats.raw",
    ),
    # Carries frames and knows nothing of what they say: the engine has it as a port.
    "ackd.peer": (
        *BASE,
        *("ackd.certificates", "ackd.config", "ackd.telemetry", "ackd.engine.base.tasks"),
    ),
    # The one place that puts a sidecar together.
    "ackd.serve": (
        *BASE,
        *("ackd.config", "ackd.engine", "ackd.http", "ackd.malloc", "ackd.peer", "ackd.push"),
        *("ackd.sqs", "ackd.telemetry.metrics"),
    ),
    "ackd.malloc": (),
    # How certificates are made that nobody else issues: for links and for the webhook.
    "ackd.certificates": (),
    # Nothing of a sidecar: it runs in a pod of its own.
    "ackd.inject": (
        *("ackd.certificates", "ackd.errors", "ackd.hidden", "ackd.unreadable"),
        "ackd.config.address",
    ),
    "ackd.cli": ("ackd", "ackd_reports"),
    "ackd.__main__": ("ackd.cli",),
    # What follows is `ackd-tools`, which is not in the image: nothing above may know it.
    # The judge of a deployment shares no code with what it judges.
    "ackd_torture": ("ackd.errors",),
    "ackd_torture.command": ("ackd.errors", "ackd.cli.exit_codes", "ackd_torture"),
    "ackd_demo": ("ackd.errors", "ackd_torture"),
    "ackd_demo.command": ("ackd.errors", "ackd.cli.exit_codes", "ackd_demo", "ackd_torture"),
    # A client of the admin port, as other commands are.
    "ackd_top": ("ackd.cli", "ackd.core.record.settles", "ackd.errors"),
    # Others run it on their adapters: it knows the ports and how adapters are found.
    "ackd_testing": (*BASE, "ackd.config"),
    "ackd_adapters": (*BASE, "ackd.retries"),
    # The example of an adapter that others write.
    "ackd_redis_stream": BASE,
    "ackd_reports": (),
}
"""Part -> parts that it may import beside itself. The longest name that fits a module counts."""

CORE_STDLIB = frozenset(
    """
    __future__ abc array base64 binascii bisect collections dataclasses enum functools hashlib heapq
    hmac itertools math operator struct types typing
    """.split()  # noqa: SIM905 -- one name a line would hide the list
)
"""What core may import of the standard library: data types and arithmetic, nothing that acts."""

TYPES_ONLY = "_typeshed"
"""What type checkers know of the standard library: private by its name only."""

HOLDERS: dict[str, tuple[str, ...]] = {
    "hiredis": ("ackd.store",),
    "tenacity": ("ackd.retries", "ackd.engine.publishing", "ackd.telemetry.traceway"),
    "redis": ("ackd_redis_stream",),
    "confluent_kafka": ("ackd_adapters.kafka", "ackd_torture"),
    "isal": ("ackd.telemetry",),
    "opentelemetry": ("ackd.telemetry.own",),
    "grpc": ("ackd_adapters.rocketmq",),
    "google": ("ackd_adapters.rocketmq",),
    "pulsar": ("ackd_adapters.pulsar",),
    "sqlite3": ("ackd_adapters.local",),
    "aiohttp": ("ackd.push", "ackd.inject", "ackd_top", "ackd_torture", "ackd_demo"),
    "cryptography": ("ackd.certificates", "ackd.inject", "ackd.peer.self_made"),
    "matplotlib": ("ackd_reports.render",),
    "pyspark": ("ackd_reports.frames", "ackd_reports.job"),
    "yaml": ("ackd_reports.openslo", "ackd.inject.api"),
    "pytest": ("ackd_testing",),
    "textual": ("ackd_top",),
    "rich": ("ackd_top", "ackd_torture", "ackd_demo"),
}
"""A library -> the only parts that may know it."""


def dependence(sources: Iterable[Source]) -> Iterator[str]:
    """Imports against the rule (core <- ports <- engine, store, adapters <- http <- cli)."""
    for source in sources:
        if not source.shipped:
            continue
        part = part_of(source.module)
        if part is None:
            yield f"{source.module}: no part of the rule; name it in tests/tidy/dependence.py"
            continue
        for line, name in source.imports():
            why = _against(source.module, part, name)
            if why:
                yield f"{source.path}:{line}: {why}"


def part_of(module: str) -> str | None:
    """The part that a module belongs to; None when the rule does not know it."""
    names = [name for name in ALLOWED if _inside(module, name)]
    longest = max(names, key=len, default=None)
    return None if longest == "ackd" and module != "ackd" else longest


def _against(module: str, part: str, name: str) -> str:
    """Why `module` of `part` must not import `name`; empty when it may."""
    top = name.partition(".")[0]
    if top == "ackd_adapters" and part == "ackd_adapters":
        return _between_adapters(module, name)
    if top in PACKAGES:
        if name in ("ackd", "ackd.__version__") or _inside(name, part):
            return ""
        if any(_inside(name, allowed) for allowed in ALLOWED[part]):
            return ""
        return f"{part} must not import {name}"
    if top != TYPES_ONLY and any(_private(each) for each in name.split(".")):
        return f"{name} is private: it may change with any release"
    if part == "ackd.core" and top not in CORE_STDLIB:
        return f"core is pure: no {top}"
    if top in HOLDERS and not any(_inside(module, holder) for holder in HOLDERS[top]):
        return f"only {', '.join(HOLDERS[top])} may know {top}"
    return ""


def _private(name: str) -> bool:
    """Whether a module, or what is taken from it, is none that others should use."""
    return name.startswith("_") and not name.endswith("__")


def _between_adapters(module: str, name: str) -> str:
    """One adapter must not lean on another."""
    own = ".".join(module.split(".")[:2])
    if _inside(name, own) or module == "ackd_adapters":
        return ""
    return f"{own} must not import {name}"


def _inside(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def circles(sources: Iterable[Source]) -> Iterator[str]:
    """Files that import each other in a circle; imports for types alone count as well."""
    shipped = {each.module: each for each in sources if each.shipped}
    arrows: dict[str, set[str]] = {}
    for module, source in shipped.items():
        named = {_module(name, shipped) for _, name in source.imports()}
        arrows[module] = {name for name in named if name and name != module}
    for circle in _circles(arrows):
        yield f"a circle of imports: {' <-> '.join(sorted(circle))}"


def package_circles(sources: Iterable[Source]) -> Iterator[str]:
    """Folders, of any depth, that import each other in a circle, through files beside them too.

    Circles of files alone are left to `circles`.
    """
    shipped = {each.module: each for each in sources if each.shipped}
    folders = {parent for module in shipped for parent in _above(module)}
    arrows: dict[str, dict[str, set[str]]] = {}
    for module, source in shipped.items():
        for _, name in source.imports():
            both, one, other = _parted(module, _module(name, shipped))
            if one and other:
                arrows.setdefault(both, {}).setdefault(one, set()).add(other)
    for both, inside in arrows.items():
        for circle in _circles(inside):
            if circle & folders:
                where = both or "the source roots"
                yield f"a circle of packages in {where}: {' <-> '.join(sorted(circle))}"


def _above(module: str) -> Iterator[str]:
    """The packages that a module is in."""
    while module := module.rpartition(".")[0]:
        yield module


def _parted(one: str, other: str) -> tuple[str, str, str]:
    """The innermost package of both modules, and its member that is or holds each of them.

    No member when one of them is that package (its `__init__`): `circles` looks at that.
    """
    ones, others = one.split("."), other.split(".")
    pairs = zip(ones, others, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    both = ".".join(ones[:shared])
    if not other or shared in (len(ones), len(others)):
        return both, "", ""
    return both, ".".join(ones[: shared + 1]), ".".join(others[: shared + 1])


def _module(name: str, known: Mapping[str, Source]) -> str:
    """The module that an import reaches: `name` itself, or the one that defines it."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def _circles(arrows: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """Sets of modules that reach each other."""
    reach: dict[str, set[str]] = {}
    for start in arrows:
        found, wanted = set[str](), [*arrows[start]]
        while wanted:
            name = wanted.pop()
            if name not in found:
                found.add(name)
                wanted += arrows.get(name, ())
        reach[start] = found
    told: set[str] = set()
    for name in arrows:
        circle = {other for other in reach[name] if name in reach.get(other, ())}
        if circle and name not in told:
            told |= circle
            yield circle
