"""`ackd seek`: move a group's progress through a sidecar's admin port.

The configuration says where the sidecar is (`server.admin_listen`), unless `--url` names another.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ackd.cli import argument_types, exit_codes
from ackd.cli.client import endpoint
from ackd.cli.client.admin import Admin, RefusedError, follow

Json = dict[str, Any]
PAUSE_REASON = "ackd seek"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd seek`."""
    parser.add_argument("subscription", help="name of the subscription")
    endpoint.add_arguments(parser, "admin")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to", choices=("earliest", "latest"), help="to the first message, or behind the last one"
    )
    where.add_argument(
        "--time",
        type=argument_types.time_ms,
        metavar="TIME",
        help="to the first message at or after this time: 2026-11-21T08:00:00Z, or Unix ms",
    )
    where.add_argument(
        "--position",
        action="append",
        type=argument_types.offset,
        metavar="TOPIC/PARTITION=OFFSET",
        help="move only this partition, to this offset; may be given several times",
    )
    where.add_argument(
        "--undo",
        action="store_true",
        help="to where it was before the last move (kept for 24 hours)",
    )
    add_way(parser)


def add_way(parser: argparse.ArgumentParser) -> None:
    """Declare the options that every command has which moves a group's progress."""
    parser.add_argument("--dry-run", action="store_true", help="only print what would happen")
    parser.add_argument(
        "--pause",
        action="store_true",
        help="pause the group first (a move needs that), and resume it afterwards",
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="print the operation's id and do not wait for its end",
    )


def run(arguments: argparse.Namespace) -> int:
    """Seek as asked; 2 when the sidecar refuses, 3 when it is unreachable."""
    to: object = arguments.to
    if arguments.undo:
        to = "before_reset"
    elif arguments.time is not None:
        to = {"time": arguments.time}
    elif arguments.position:
        to = {"positions": arguments.position}
    return move(arguments, "seek", {"to": to})


def move(arguments: argparse.Namespace, verb: str, body: Json) -> int:
    """Start the operation at the sidecar and, without `--no-wait`, follow it to its end."""
    with Admin.of(arguments) as admin:
        try:
            return _move(admin, arguments, verb, body | {"dry_run": arguments.dry_run})
        except RefusedError as error:
            print(f"ackd: {error}", file=sys.stderr)
            return exit_codes.UNREACHABLE if error.away else exit_codes.CONFIG


def _move(admin: Admin, arguments: argparse.Namespace, verb: str, body: Json) -> int:
    base = ("v1", "subscriptions", arguments.subscription)
    if arguments.dry_run:
        return _show(admin.post((*base, verb), body))
    if not arguments.pause:
        return _begin(admin, arguments, (*base, verb), body)
    if arguments.no_wait:
        raise RefusedError("--pause and --no-wait do not go together")
    admin.post((*base, "pause"), {"reason": PAUSE_REASON})
    try:
        return _begin(admin, arguments, (*base, verb), body)
    finally:
        # This is safe while the operation still runs, because it pauses the group itself.
        admin.post((*base, "resume"), {})


def _begin(admin: Admin, arguments: argparse.Namespace, path: tuple[str, ...], body: Json) -> int:
    operation = admin.post(path, body)
    print(f"operation {operation['id']}")
    return exit_codes.DONE if arguments.no_wait else follow(admin, operation, line_of)


def line_of(operation: Json) -> str:
    """An operation's state and progress in one line."""
    error = f"; {operation['error']}" if operation["error"] else ""
    done = f"{operation['scanned']} of {operation['total']} partitions"
    as_it_was = f", {operation['skipped']} as they were" if operation["skipped"] else ""
    return f"{operation['state']}: {done}, {operation['moved']} moved{as_it_was}{error}"


def _show(plan: Json) -> int:
    for each in plan["partitions"]:
        print(
            f"{each['topic']}/{each['partition']}: {each['from_offset']} -> {each['to_offset']},"
            f" {each['again']} again, {each['skipped']} skipped, {each['leases_kept']} leases kept"
        )
    again, skipped, kept = plan["again"], plan["skipped"], plan["leases_kept"]
    print(f"in all: {again} again, {skipped} skipped, {kept} leases kept")
    return exit_codes.DONE
