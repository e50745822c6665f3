"""`ackd version`: print the version; `--all` adds Python, libraries and installed adapters."""

from __future__ import annotations

import argparse
import platform

from ackd import __version__
from ackd.cli import exit_codes
from ackd.config.adapters import adapter_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd version`."""
    parser.add_argument(
        "--all", action="store_true", help="also print Python, platform and adapters"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the version of ackd."""
    print(f"ackd {__version__}")
    if arguments.all:
        print(f"python {platform.python_version()} ({platform.python_implementation()})")
        print(f"platform {platform.platform()}")
        print(f"adapters {', '.join(adapter_names()) or 'none'}")
    return exit_codes.DONE
