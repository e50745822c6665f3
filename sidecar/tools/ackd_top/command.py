"""`ackd top`: watch subscriptions of running sidecars, in a terminal or as plain text.

The terminal view is made with Textual, which is an extra; the plain output needs nothing more.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from importlib.util import find_spec

from ackd.cli import argument_types, common, exit_codes
from ackd.cli.client import endpoint
from ackd_top import plain

WIDTH_MIN = 60
MISSING = (
    "the terminal view needs Textual: pip install 'ackd[top]' (in a clone: pip install '.[top]' "
    "./sidecar/tools); without it there is `ackd top --plain` and `ackd top --once`"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd top`."""
    endpoint.add_arguments(parser, "admin", several=True)
    parser.add_argument(
        "--every",
        type=_period,
        default=2000,
        metavar="TIME",
        help="time between two looks; default 2s",
    )
    parser.add_argument(
        "--older",
        type=argument_types.duration_ms,
        default=60_000,
        metavar="TIME",
        help="a message counts as stuck when it was first delivered this long ago; default 1m",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="show only subscriptions whose name contains this",
    )
    parser.add_argument(
        "--once", action="store_true", help="look once, print that as text, and end"
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="print each look as text; this is the default when the output is no terminal",
    )
    parser.add_argument(
        "--json", action="store_true", help="print each look as one JSON object per line"
    )


def _period(text: str) -> int:
    """Parse the time between two looks; ms. Raises ValueError."""
    found = argument_types.duration_ms(text)
    if not 200 <= found <= 3_600_000:  # noqa: PLR2004 - said in the text
        message = "between 200ms and 1h"
        raise argparse.ArgumentTypeError(message)
    return found


def run(arguments: argparse.Namespace) -> int:
    """Watch; 0, or with --once 3 when no sidecar answers."""
    places = endpoint.find_all(arguments, "admin")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if terminal and not (arguments.once or arguments.plain or arguments.json):
        return _terminal(places, arguments)
    width = max(shutil.get_terminal_size((120, 0)).columns, WIDTH_MIN)
    return common.run_loop(
        plain.show(
            places,
            lambda text: print(text, flush=True),
            every_s=arguments.every / 1000,
            older_ms=arguments.older,
            only=arguments.only,
            width=width,
            once=arguments.once,
            as_json=arguments.json,
        )
    )


def _terminal(places: list[endpoint.AdminEndpoint], arguments: argparse.Namespace) -> int:
    if find_spec("textual") is None:
        print(f"ackd: {MISSING}", file=sys.stderr)
        return exit_codes.CONFIG
    from ackd_top.app import TopApp  # noqa: PLC0415  an extra

    app = TopApp(
        places,
        every_s=arguments.every / 1000,
        older_ms=arguments.older,
        only=arguments.only,
    )
    app.run()
    return app.return_code or exit_codes.DONE
