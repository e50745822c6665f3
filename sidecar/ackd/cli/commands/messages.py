"""`ackd messages`: list the unfinished messages of a subscription, or say where one message is."""

from __future__ import annotations

import argparse
import time

from ackd.api.messages import STATES
from ackd.cli import exit_codes
from ackd.cli.client import client_command
from ackd.cli.client.admin import Admin, Json, RefusedError
from ackd.cli.figures import age, clean, moment, until
from ackd.cli.message_lines import message_line

WIDTH = 200
PAGE = 1000
PARTS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd messages`."""
    client_command.add_arguments(parser, "name of the subscription")
    parser.add_argument(
        "message",
        nargs="?",
        help="topic/partition/offset of the message to look at, say orders/3/2101; without it: all "
        "unfinished ones, those delivered first the longest ago first",
    )
    parser.add_argument(
        "--state", action="append", choices=STATES, help="only these; may be given several times"
    )
    parser.add_argument(
        "--max", type=int, default=100, metavar="N", help="list at most N; default 100"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the messages, or what is known of one; 2 when the sidecar refuses, 3 when it is
    unreachable.
    """
    return client_command.run(
        arguments,
        lambda admin: _one(admin, arguments) if arguments.message else _list(admin, arguments),
    )


def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    path = ("v1", "subscriptions", arguments.subscription, "messages")
    query = {"state": ",".join(arguments.state)} if arguments.state else {}
    left, cursor = arguments.max, ""
    missing: dict[str, str] = {}
    while left > 0 and cursor is not None:
        more = {"cursor": cursor} if cursor else {}
        page = admin.get(path, query | more | {"max": str(min(left, PAGE))})
        now_ms = time.time_ns() // 1_000_000
        for each in page["messages"]:
            if arguments.json:
                print(client_command.one_line(each))
            else:
                print(message_line(each, WIDTH, now_ms))
        left -= len(page["messages"])
        cursor = page["cursor"]
        missing |= page["missing"]
    client_command.print_missing({"missing": missing})
    return exit_codes.DONE


def _one(admin: Admin, arguments: argparse.Namespace) -> int:
    place = arguments.message.rsplit("/", PARTS - 1)
    if len(place) != PARTS:
        raise RefusedError("not a message's id, which is topic/partition/offset")
    answer = admin.get(("v1", "subscriptions", arguments.subscription, "messages", *place))
    if arguments.json:
        client_command.print_json(answer)
        return exit_codes.DONE
    print("\n".join(lines(answer, time.time_ns() // 1_000_000)))
    client_command.print_missing(answer)
    return exit_codes.DONE


def lines(message: Json, now_ms: int) -> list[str]:
    """What is known of one message as text, its deliveries last."""
    found = [f"{clean(message['id'])}: {message['state']}, {_attempts(message['attempt'])}"]
    if message["holder"]:
        found.append(f"  held by {clean(message['holder'])}")
    for name, word in (("deadline_ms", "lease ends"), ("due_ms", "delivered again")):
        if message[name] is not None:
            found.append(f"  {word} {moment(message[name])} ({until(message[name], now_ms)})")
    for name, word in (
        ("released_by", "waits for"),
        ("owner", "granted by sidecar"),
        ("copy", "copy in the retry topic"),
        ("dead_letter", "dead letter"),
        ("error", "failed with"),
    ):
        if message[name]:
            found.append(f"  {word}: {clean(message[name])}")
    if message["letters_unread"]:
        found.append("  not all dead letters could be read in time")
    found += [f"  {_delivery(each)}" for each in message["history"]]
    return found


def _attempts(attempt: int) -> str:
    return f"attempt {attempt}" if attempt else "not delivered yet"


def _delivery(past: Json) -> str:
    at = "" if past["at_ms"] is None else f" {moment(past['at_ms'])}"
    holder = f" by {clean(past['holder'])}" if past["holder"] else ""
    took = ""
    if past["at_ms"] is not None and past["ended_ms"] is not None:
        took = f" after {age((past['ended_ms'] - past['at_ms']) / 1000)}"
    reason = f": {clean(past['reason'])}" if past["reason"] else ""
    return f"attempt {past['attempt']}{at}{holder}, {past['end'].replace('_', ' ')}{took}{reason}"
