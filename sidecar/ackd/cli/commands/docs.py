"""`ackd docs`: generate a reference page from the source and print it.

The repository keeps these pages in `docs/reference`; a test compares them with this output.
`--adapters all` adds the options of every installed adapter to the configuration page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ackd.cli import exit_codes
from ackd.config import reference as configuration
from ackd.config.adapters import adapter_names
from ackd.telemetry import reference as metrics

OWN_ADAPTERS = ("kafka", "local", "pulsar", "rocketmq")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd docs`."""
    parser.add_argument("page", choices=sorted(PAGES), help="the page to print")
    parser.add_argument(
        "--adapters",
        choices=("own", "all"),
        default="own",
        help="adapters whose options the page `configuration` has: ackd's own, or all installed",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the page to standard output."""
    names = adapter_names() if arguments.adapters == "all" else OWN_ADAPTERS
    print(PAGES[arguments.page](tuple(names)), end="")
    return exit_codes.DONE


def commands() -> str:
    """`docs/reference/commands.md`: all commands and exit codes."""
    from ackd.cli.main import COMMANDS  # noqa: PLC0415  main loads this module by its name

    lines = [
        "# Commands",
        "",
        "This page is made from the source: `ackd docs commands`. `ackd COMMAND --help` lists the",
        "arguments of a command.",
        "",
        "| command | what it does |",
        "|---|---|",
        *(f"| `ackd {each.name}` | {each.text} |" for each in COMMANDS),
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| {code} | {text} |" for code, text in exit_codes.EXITS.items()),
        "",
    ]
    return "\n".join(lines)


def problems() -> str:
    """`docs/reference/problems.md`: every error that a caller can get."""
    from ackd.http.formats.problems import catalogue  # noqa: PLC0415  only this page needs HTTP

    return catalogue()


def routes() -> str:
    """`docs/reference/routes.md`: every address of both ports."""
    from ackd.http.reference import page  # noqa: PLC0415  as above

    return page()


PAGES: dict[str, Callable[[tuple[str, ...]], str]] = {
    "configuration": configuration.page,
    "metrics": lambda _adapters: metrics.page(),
    "commands": lambda _adapters: commands(),
    "problems": lambda _adapters: problems(),
    "routes": lambda _adapters: routes(),
}
