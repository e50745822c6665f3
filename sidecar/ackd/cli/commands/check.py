"""`ackd check`: report all mistakes in the configuration at once, or print every setting in effect
and where it comes from.

`--connect` also connects to the store and to every broker, and looks up the topics; it changes
nothing.
"""

from __future__ import annotations

import argparse
import logging

from ackd.cli import common, exit_codes
from ackd.config.show import as_toml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd check`."""
    common.add_config(parser)
    parser.add_argument(
        "--connect", action="store_true", help="also connect to the store and the brokers"
    )
    parser.add_argument("--quiet", action="store_true", help="do not print the settings in effect")


def run(arguments: argparse.Namespace) -> int:
    """Print the settings; 0, or 3 when something could not be reached. Raises `MistakesError`."""
    settings = common.settings_of(arguments)
    if not arguments.quiet:
        print(as_toml(settings), end="")
    if not arguments.connect:
        return exit_codes.DONE
    from ackd.cli.offline.probe import probe  # noqa: PLC0415  loads the brokers' clients

    # The results name each failure; log lines of client libraries would hide them.
    logging.getLogger().addHandler(logging.NullHandler())
    failed = False
    for result in common.run_loop(probe(settings)):
        print(f"{result.level:<6} {result.part}: {result.detail}")
        failed = failed or result.level == "FAILED"
    return exit_codes.UNREACHABLE if failed else exit_codes.DONE
