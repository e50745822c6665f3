"""Arguments, refusals and printing, for commands that ask a running sidecar once."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence

from ackd.cli import exit_codes
from ackd.cli.client import endpoint
from ackd.cli.client.admin import Admin, Json, RefusedError
from ackd.cli.figures import clean


def add_arguments(parser: argparse.ArgumentParser, text: str) -> None:
    """Declare the subscription, `--json`, and where the sidecar is."""
    parser.add_argument("subscription", help=text)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    endpoint.add_arguments(parser, "admin")


def run(
    arguments: argparse.Namespace, do: Callable[[Admin], int], port: endpoint.Port = "admin"
) -> int:
    """Return what `do` returns; 2 when the sidecar refuses, 3 when it or what it needs is
    unreachable.
    """
    with Admin.of(arguments, port) as admin:
        try:
            return do(admin)
        except RefusedError as error:
            print(f"ackd: {clean(error)}", file=sys.stderr)
            return exit_codes.UNREACHABLE if error.away else exit_codes.CONFIG


def each(
    things: Iterable[str],
    ask: Callable[[str], Json],
    *,
    named: Callable[[str], str],
    in_words: Callable[[Json], str],
) -> int:
    """Ask for one thing after the other and print each result; 2 when one was refused.

    `named`: how a refused item is called; `in_words`: an answer's line. Raises RefusedError when
    the sidecar or what it needs is unreachable: then this item's result and all later ones are
    unknown.
    """
    code = exit_codes.DONE
    for thing in things:
        try:
            answer = ask(thing)
        except RefusedError as error:
            if error.away:
                raise
            print(f"ackd: {clean(named(thing))}: {clean(error)}", file=sys.stderr)
            code = exit_codes.CONFIG
            continue
        print(in_words(answer))
    return code


def print_json(answer: Json) -> None:
    """Print an answer as indented JSON, which people and programs can read."""
    print(json.dumps(answer, indent=2, ensure_ascii=False))


def one_line(answer: Json) -> str:
    """An answer as JSON without line breaks."""
    return json.dumps(answer, ensure_ascii=False)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print aligned columns, each as wide as its content: the first to the left, the others to the
    right.
    """
    lines = [list(titles), *(list(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(titles))]
    for first, *rest in lines:
        cells = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def print_missing(answer: Json) -> None:
    """Name the sidecars of the group whose part an answer lacks, and why."""
    for name, why in answer["missing"].items():
        print(f"not known: what sidecar {clean(name)} has ({clean(why)})", file=sys.stderr)
