"""Every name that the reference pages owe their reader, found in the code and not in the pages.

Settings come from the schema and each adapter's options, routes from the table that serves them,
error types from the tree of errors, metrics from their registry, commands from the program. The
value is the sentence that documents the name at its source.
"""

from collections.abc import Iterator
from typing import Any

from ackd.cli.commands.docs import OWN_ADAPTERS
from ackd.cli.main import COMMANDS
from ackd.config.adapters import find_adapter
from ackd.config.fields import FieldKind, specs
from ackd.config.schema import Settings
from ackd.errors import AckdError
from ackd.http.routes import ROUTES
from ackd.telemetry.metrics import Metrics


def documented_names() -> dict[str, dict[str, str]]:
    """Page -> name -> sentence."""
    return {
        "configuration": dict(_settings()),
        "routes": {f"{route.method} {route.path}": route.text for route in ROUTES},
        "problems": {kind.type: kind.title() for kind in error_types(AckdError)},
        "metrics": {family.name: family.text for family in Metrics().families},
        "commands": {f"ackd {command.name}": command.text for command in COMMANDS},
    }


def error_types(top: type[AckdError]) -> Iterator[type[AckdError]]:
    """The errors of `ackd.errors` below `top` that are raised as they are (leaves of the tree)."""
    children = [kind for kind in top.__subclasses__() if kind.__module__ == AckdError.__module__]
    if not children:
        yield top
    for kind in children:
        yield from error_types(kind)


def _settings() -> Iterator[tuple[str, str]]:
    sections: list[type[Any]] = [Settings]
    sections += [find_adapter(name).options for name in OWN_ADAPTERS]
    while sections:
        for spec in specs(sections.pop()):
            if spec.section is not None:
                sections.append(spec.section)
            elif spec.kind is not FieldKind.OPTIONS:  # the adapters' own, which are sections here
                yield spec.name, spec.doc
