"""A metric that nobody feeds is a promise on the documentation's page: each family must be fed."""

import ast
from collections.abc import Iterable, Iterator

from tests.tidy.sources import Source

MODULE = "ackd.telemetry.metrics"
MAKERS = ("counter", "gauge", "histogram")
HOLDERS = ("metrics", "metrics.publishing")
"""How an expression ends that has a family as its attribute."""


def unfed_metrics(sources: Iterable[Source]) -> Iterator[str]:
    """Families of the catalogue of which the product takes no series (`metrics.family.at(...)`)."""
    everything = [source for source in sources if source.shipped]
    families: dict[str, Source] = {}
    fed: set[str] = set()
    for source in everything:
        if source.module == MODULE:
            families |= dict.fromkeys(_made(source.tree), source)
        fed.update(_fed(source))
    for name, source in families.items():
        if name not in fed:
            yield f"{source.path}: nothing feeds the metric {name}"


def _made(tree: ast.Module) -> Iterator[str]:
    """Names of the attributes that hold a family: `self.name = made.counter(...)`."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Attribute(attr=name)], ast.Call(ast.Attribute(attr=maker))):
                if maker in MAKERS:
                    yield name
            case _:
                pass


def _fed(source: Source) -> Iterator[str]:
    """`metrics.name.at(...)`, whatever the expression before `metrics` is."""
    own = ("self",) if source.module == MODULE else ()
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(ast.Attribute(ast.Attribute(holder, name), "at")):
                text = ast.unparse(holder)
                if text in own or text.endswith(HOLDERS):
                    yield name
            case _:
                pass
