"""`ackd dead`: list, show, redrive and purge dead letters through a sidecar's admin port.

The configuration says where the sidecar is (`server.admin_listen`), unless `--url` names another.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ackd.cli import argument_types, exit_codes
from ackd.cli.client import endpoint
from ackd.cli.client.admin import Admin, RefusedError, follow
from ackd.cli.client.endpoint import subscription_action

PAGE = 100
_FILTERS = ("topic", "key", "reason", "error")

Json = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd dead`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = subscription_action(actions, "list", "list dead letters")
    listing.add_argument(
        "--max", type=int, default=PAGE, metavar="N", help="list at most N; default 100"
    )
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    peek = subscription_action(actions, "peek", "print one dead letter with its body, as JSON")
    peek.add_argument("id", help="id of the dead letter as `list` prints it, say 0-17")
    redrive = subscription_action(actions, "redrive", "deliver dead letters again")
    _add_selection(redrive)
    redrive.add_argument(
        "--to",
        choices=("group", "origin"),
        default="group",
        help="group (default): to this group only; origin: publish them to the topic that they "
        "came from, where every group gets them",
    )
    redrive.add_argument(
        "--set-header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a header of the redriven messages",
    )
    redrive.add_argument(
        "--remove-header",
        action="append",
        default=[],
        metavar="NAME",
        help="remove a header of the redriven messages",
    )
    redrive.add_argument(
        "--unsigned",
        action="store_true",
        help="also those that ackd did not sign, and records that it put aside",
    )
    purge = subscription_action(
        actions, "purge", "finish dead letters without delivery; this can't be undone"
    )
    _add_selection(purge)
    purge.add_argument(
        "--confirm",
        default="",
        metavar="NAME",
        help="must be the subscription's name, as a safeguard",
    )
    for name, text in (
        ("status", "show how far a redrive or purge is"),
        ("cancel", "stop a redrive or purge"),
    ):
        sub = actions.add_parser(name, help=text, allow_abbrev=False)
        sub.add_argument("operation", help="id of the operation, as it was printed")
        endpoint.add_arguments(sub, "admin")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(sub.format_usage() for sub in actions.choices.values())


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="take these, as `list` prints them, say 0-17"
    )
    parser.add_argument("--all", action="store_true", help="take all that fit the other options")
    parser.add_argument("--topic", metavar="NAME", help="only those that came from this topic")
    parser.add_argument("--key", metavar="TEXT", help="only those with this key")
    parser.add_argument("--reason", metavar="TEXT", help="only those whose reason contains this")
    parser.add_argument(
        "--error", metavar="TEXT", help="only those whose last failure reason contains this"
    )
    when = "2026-01-31T08:00:00Z, Unix ms, or how long ago (2h)"
    parser.add_argument(
        "--after",
        type=argument_types.past_ms,
        metavar="TIME",
        help=f"only those dead-lettered at or after: {when}",
    )
    parser.add_argument(
        "--before",
        type=argument_types.past_ms,
        metavar="TIME",
        help="only those dead-lettered before; forms as in --after",
    )
    parser.add_argument("--max", type=int, metavar="N", help="take at most N")
    parser.add_argument("--rate", type=int, metavar="N", help="handle at most N per second")
    parser.add_argument("--dry-run", action="store_true", help="only print what would happen")
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="print the operation's id and do not wait for its end",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen action; 2 when the sidecar refuses, 3 when it is unreachable."""
    action: Callable[[Admin, argparse.Namespace], int] = _ACTIONS[arguments.action]
    with Admin.of(arguments) as admin:
        try:
            return action(admin, arguments)
        except RefusedError as error:
            print(f"ackd: {error}", file=sys.stderr)
            return exit_codes.UNREACHABLE if error.away else exit_codes.CONFIG


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    left, cursor, unreadable = arguments.max, "0-0", 0
    while left > 0 and cursor is not None:
        query = {"cursor": cursor, "max": str(min(left, PAGE))}
        page = admin.get(("v1", "subscriptions", arguments.subscription, "dead"), query)
        for each in page["messages"]:
            print(json.dumps(each, ensure_ascii=False) if arguments.json else _line(each))
        left -= len(page["messages"])
        cursor = page["cursor"]
        unreadable += page.get("unreadable", 0)
    if unreadable:
        print(f"ackd: {unreadable} records in the topic are no dead letters", file=sys.stderr)
    return exit_codes.DONE


def _line(letter: Json) -> str:
    when = datetime.fromtimestamp(letter["dead_ms"] / 1000, UTC).isoformat(timespec="seconds")
    state = "" if letter["state"] == "dead" else f" [{letter['state']}]"
    why = letter["reason"] or letter["last_error"]
    tail = f"attempts {letter['attempts']}{state} {why}"
    return f"{letter['id']:<10} {when} {letter['message']} {tail}"


def _peek(admin: Admin, arguments: argparse.Namespace) -> int:
    path = ("v1", "subscriptions", arguments.subscription, "dead", arguments.id)
    print(json.dumps(admin.get(path), indent=2, ensure_ascii=False))
    return exit_codes.DONE


def _redrive(admin: Admin, arguments: argparse.Namespace) -> int:
    body = _selection(arguments) | {"to": arguments.to}
    if arguments.all:
        body["confirm"] = arguments.subscription
    if arguments.set_header:
        pairs = (each.partition("=") for each in arguments.set_header)
        body["set_headers"] = {name: value for name, _, value in pairs}
    if arguments.remove_header:
        body["remove_headers"] = arguments.remove_header
    if arguments.unsigned:
        body["unsigned"] = True
    return _begin(admin, arguments, "dead:redrive", body)


def _purge(admin: Admin, arguments: argparse.Namespace) -> int:
    body = _selection(arguments) | {"confirm": arguments.confirm}
    return _begin(admin, arguments, "dead:purge", body)


def _selection(arguments: argparse.Namespace) -> Json:
    """Which dead letters to redrive or purge, as a part of the request. Raises RefusedError."""
    given = {name: getattr(arguments, name) for name in _FILTERS}
    given |= {"after_ms": arguments.after, "before_ms": arguments.before}
    wanted = {name: value for name, value in given.items() if value is not None}
    if not (arguments.ids or wanted or arguments.all or arguments.max is not None):
        raise RefusedError("say which: ids, a filter, --max, or --all")
    body: Json = {"dry_run": arguments.dry_run}
    if arguments.ids:
        body["ids"] = arguments.ids
    if wanted:
        body["filter"] = wanted
    if arguments.max is not None:
        body["max"] = arguments.max
    if arguments.rate is not None:
        body["rate_per_s"] = arguments.rate
    return body


def _begin(admin: Admin, arguments: argparse.Namespace, verb: str, body: Json) -> int:
    answer = admin.post(("v1", "subscriptions", arguments.subscription, verb), body)
    if arguments.dry_run:
        more = "" if answer["complete"] else " so far (there was not time for all)"
        print(f"would take {answer['matched']} of {answer['scanned']} looked at{more}")
        for each in answer["messages"]:
            print(_line(each))
        return exit_codes.DONE
    print(f"operation {answer['id']}")
    if arguments.no_wait:
        return exit_codes.DONE
    return follow(admin, answer, line_of)


def line_of(operation: Json) -> str:
    """The state of a redrive or purge and how far it is, in one line."""
    counts = ", ".join(f"{operation[name]} {name}" for name in ("moved", "failed", "skipped"))
    error = f"; {operation['error']}" if operation["error"] else ""
    looked = f"{operation['scanned']} of {operation['total']} looked at"
    return f"{operation['state']}: {looked}, {counts}{error}"


def _status(admin: Admin, arguments: argparse.Namespace) -> int:
    print(line_of(admin.get(("v1", "operations", arguments.operation))))
    return exit_codes.DONE


def _cancel(admin: Admin, arguments: argparse.Namespace) -> int:
    print(line_of(admin.delete(("v1", "operations", arguments.operation))))
    return exit_codes.DONE


_ACTIONS: dict[str, Callable[[Admin, argparse.Namespace], int]] = {
    "list": _list,
    "peek": _peek,
    "redrive": _redrive,
    "purge": _purge,
    "status": _status,
    "cancel": _cancel,
}
