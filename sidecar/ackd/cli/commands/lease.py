"""`ackd lease`: show or settle leases through the data port, as an application does."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ackd.cli import argument_types
from ackd.cli.client import client_command, endpoint
from ackd.cli.client.admin import Admin, Json
from ackd.cli.figures import clean, cut, moment, until
from ackd.core.record.settles import SETTLES

STDIN = "-"
SHOWN = 20
"""How many characters of a lease the command prints: enough to find it, too few to use it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd lease`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _action(actions, "show", "print the state of the lease; changes nothing")
    for rule in SETTLES.values():
        sub = _action(actions, rule.do.value, rule.text[0].lower() + rule.text[1:].rstrip("."))
        for option in rule.options:
            if option in _OPTIONS:
                _OPTIONS[option](sub)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(sub.format_usage() for sub in actions.choices.values())


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    sub: argparse.ArgumentParser = actions.add_parser(name, help=text, allow_abbrev=False)
    sub.add_argument(
        "leases",
        nargs="+",
        metavar="LEASE",
        help="lease token as received; - reads tokens from standard input, one per line",
    )
    sub.add_argument("--json", action="store_true", help="print one JSON object per line")
    endpoint.add_arguments(sub, "data")
    return sub


def run(arguments: argparse.Namespace) -> int:
    """Show or settle the leases one by one; 2 when the sidecar refused one (it is lost, say), 3
    when the sidecar or its store is unreachable: the results of that lease and of all later ones
    are unknown then.
    """

    def do(admin: Admin) -> int:
        return client_command.each(
            _leases(arguments.leases),
            lambda lease: _one(admin, arguments.action, lease, _body(arguments)),
            named=lambda lease: cut(lease, SHOWN),
            in_words=client_command.one_line if arguments.json else _in_words,
        )

    return client_command.run(arguments, do, "data")


def _leases(given: list[str]) -> Iterator[str]:
    for each in given:
        if each == STDIN:
            yield from (line.strip() for line in sys.stdin if line.strip())
        else:
            yield each


def _one(admin: Admin, action: str, lease: str, body: Json) -> Json:
    if action == "show":
        return admin.get(("v1", "leases", lease))
    return admin.post(("v1", "leases", lease, action), body)


def _in_words(answer: Json) -> str:
    """The answer in words: `leased, attempt 2, until 2026-11-21 08:00:00Z (in 41s)`."""
    now_ms = time.time_ns() // 1_000_000
    words = [clean(answer.get("state") or answer.get("status"))]
    if "attempt" in answer:
        words.append(f"attempt {answer['attempt']}")
    for name, text in (("deadline_ms", "until"), ("due_ms", "again at")):
        if name in answer:
            words.append(f"{text} {moment(answer[name])} ({until(answer[name], now_ms)})")
    if answer.get("late"):
        words.append("past its deadline, but nobody else had it yet")
    return ", ".join(words)


def _body(arguments: argparse.Namespace) -> Json:
    """The members of the request that were given on the command line."""
    given = {name: getattr(arguments, name, None) for name in _OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def _delay(sub: argparse.ArgumentParser) -> None:
    kind, text = (
        argument_types.duration_ms,
        "delay before the next delivery, say 30s; default: the retry schedule",
    )
    sub.add_argument("--delay", dest="delay_ms", type=kind, metavar="TIME", help=text)


def _lease(sub: argparse.ArgumentParser) -> None:
    kind, text = (
        argument_types.duration_ms,
        "new length of the lease from now, say 5m; default: the subscription's `lease_ms`",
    )
    sub.add_argument("--lease", dest="lease_ms", type=kind, metavar="TIME", help=text)


def _count(sub: argparse.ArgumentParser) -> None:
    text = "do not count this attempt"
    sub.add_argument("--no-count", dest="count", action="store_const", const=False, help=text)


def _reason(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--reason", metavar="TEXT", help="why; ackd keeps it with the message for operators"
    )


_OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "delay_ms": _delay,
    "lease_ms": _lease,
    "count": _count,
    "reason": _reason,
}
"""Members of a request -> who declares their argument."""
