"""`ackd operations`: list seeks, imports, redrives and purges, or follow one to its end."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from ackd.api.dead_letters import Kind, Progress
from ackd.cli import exit_codes
from ackd.cli.client import client_command, endpoint
from ackd.cli.client.admin import Admin, Json, RefusedError, follow
from ackd.cli.commands import dead, seek
from ackd.cli.figures import clean

_LETTERS = frozenset(each.value for each in Kind)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd operations`."""
    parser.add_argument(
        "operation",
        nargs="?",
        help="id of the operation to follow, as the list prints it; without it: the list",
    )
    parser.add_argument("--subscription", metavar="NAME", help="only those of this subscription")
    parser.add_argument("--state", choices=[each.value for each in Progress], help="only these")
    parser.add_argument(
        "--no-wait", action="store_true", help="print how far the operation is, and end"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    endpoint.add_arguments(parser, "admin")


def run(arguments: argparse.Namespace) -> int:
    """Print the list, or the progress of one until it ends; 1 when it ends without being done, 2
    when the sidecar refuses, 3 when it is unreachable.
    """
    return client_command.run(
        arguments,
        lambda admin: _one(admin, arguments) if arguments.operation else _list(admin, arguments),
    )


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    chosen = {"subscription": arguments.subscription, "state": arguments.state}
    query = {name: value for name, value in chosen.items() if value is not None}
    answer = admin.get(("v1", "operations"), query)
    if arguments.json:
        client_command.print_json(answer)
        return exit_codes.DONE
    for each in answer["operations"]:
        print(_line(each))
    return exit_codes.DONE


def _one(admin: Admin, arguments: argparse.Namespace) -> int:
    if arguments.subscription is not None or arguments.state is not None:
        raise RefusedError("--subscription and --state choose from the list, not of one operation")
    operation = admin.get(("v1", "operations", arguments.operation))
    if not arguments.json and not arguments.no_wait:
        return follow(admin, operation, progress)
    if arguments.json:
        client_command.print_json(operation)
    else:
        print(progress(operation))
    return exit_codes.DONE


def _line(operation: Json) -> str:
    began = datetime.fromtimestamp(operation["created_ms"] / 1000, UTC).isoformat(" ", "seconds")
    what = f"{operation['kind']:<8} {clean(operation['subscription'])}"
    return f"{operation['id']}  {began.removesuffix('+00:00')}Z  {what}  {progress(operation)}"


def progress(operation: Json) -> str:
    """An operation's state and how far it is, as the command that begins it prints that."""
    letters = operation["kind"] in _LETTERS
    return clean(dead.line_of(operation) if letters else seek.line_of(operation))
