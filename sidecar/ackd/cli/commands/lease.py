"""`ackd lease`: show or settle leases through the data port, as an application does."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ackd.cli import argument_types
from ackd.cli.client import asking, endpoint
from ackd.cli.client.admin import Admin, Json
from ackd.cli.figures import clean, cut, moment, until

STDIN = "-"
SHOWN = 20
"""How many characters of a lease the command prints: enough to find it, too few to use it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _action(actions, "show", "what has become of it; changes nothing")
    _action(actions, "ack", "the message is done")
    retry = _action(actions, "retry", "hand it out again after a delay")
    retry.add_argument(
        "--delay", type=argument_types.duration_ms, metavar="TIME", help="default: by the schedule"
    )
    retry.add_argument("--no-count", action="store_true", help="this attempt does not count")
    extend = _action(actions, "extend", "keep the lease for longer")
    extend.add_argument(
        "--lease",
        type=argument_types.duration_ms,
        metavar="TIME",
        help="from now; default: the subscription's lease",
    )
    dead = _action(actions, "dead", "never hand it out again")
    for sub in (retry, dead):
        sub.add_argument("--reason", metavar="TEXT", help="why, for people")
    _action(actions, "release", "give it back; the attempt does not count")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(sub.format_usage() for sub in actions.choices.values())


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    sub: argparse.ArgumentParser = actions.add_parser(name, help=text, allow_abbrev=False)
    sub.add_argument(
        "leases", nargs="+", metavar="LEASE", help="as received; - reads them, one a line"
    )
    sub.add_argument("--json", action="store_true", help="one JSON object a line")
    endpoint.add_arguments(sub, "data")
    return sub


def run(arguments: argparse.Namespace) -> int:
    """Show or settle the leases one by one; 2 when the sidecar refused one (it is lost, say), 3
    when the sidecar or its store is unreachable: the results of that lease and of all later ones
    are unknown then.
    """
    body = _BODIES.get(arguments.action, _nothing)

    def do(admin: Admin) -> int:
        return asking.each(
            _leases(arguments.leases),
            lambda lease: _one(admin, arguments.action, lease, body(arguments)),
            named=lambda lease: cut(lease, SHOWN),
            in_words=asking.one_line if arguments.json else _in_words,
        )

    return asking.run(arguments, do, "data")


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


def _retry(arguments: argparse.Namespace) -> Json:
    found = _reason(arguments)
    if arguments.delay is not None:
        found["delay_ms"] = arguments.delay
    if arguments.no_count:
        found["count"] = False
    return found


def _extend(arguments: argparse.Namespace) -> Json:
    return {} if arguments.lease is None else {"lease_ms": arguments.lease}


def _nothing(_arguments: argparse.Namespace) -> Json:
    return {}


def _reason(arguments: argparse.Namespace) -> Json:
    return {} if arguments.reason is None else {"reason": arguments.reason}


_BODIES: dict[str, Callable[[argparse.Namespace], Json]] = {
    "retry": _retry,
    "extend": _extend,
    "dead": _reason,
}
