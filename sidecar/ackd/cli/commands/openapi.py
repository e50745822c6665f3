"""`ackd openapi`: generate the OpenAPI 3.1 document from the routes and print it."""

from __future__ import annotations

import argparse
import json

from ackd.cli import exit_codes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd openapi`."""
    parser.add_argument(
        "--indent",
        type=int,
        default=2,
        choices=range(9),
        metavar="N",
        help="spaces per level; default 2",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the OpenAPI document to standard output."""
    from ackd.http.openapi import document  # noqa: PLC0415  only this command needs it
    from ackd.http.routes import ROUTES  # noqa: PLC0415  as above

    print(json.dumps(document(ROUTES), indent=arguments.indent or None, ensure_ascii=False))
    return exit_codes.DONE
