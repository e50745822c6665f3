"""`ackd inflight`: list leased messages and those that wait for a retry, the oldest first."""

from __future__ import annotations

import argparse
import time

from ackd.cli import argument_types, exit_codes
from ackd.cli.client import client_command
from ackd.cli.client.admin import Admin
from ackd.cli.figures import clean
from ackd.cli.message_lines import message_line

WIDTH = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd inflight`."""
    client_command.add_arguments(parser, "name of the subscription")
    parser.add_argument(
        "--older",
        type=argument_types.duration_ms,
        default=0,
        metavar="TIME",
        help="only messages first delivered at least this long ago, say 5m",
    )
    parser.add_argument(
        "--max", type=int, default=100, metavar="N", help="list at most N; default 100"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the messages; 2 when the sidecar refuses, 3 when it is unreachable."""

    def show(admin: Admin) -> int:
        path = ("v1", "subscriptions", arguments.subscription, "in-flight")
        query = {"older_ms": str(arguments.older), "max": str(arguments.max)}
        answer = admin.get(path, query)
        if arguments.json:
            client_command.print_json(answer)
            return exit_codes.DONE
        now_ms = time.time_ns() // 1_000_000
        for message in answer["messages"]:
            print(message_line(message, WIDTH, now_ms))
            if message["error"]:
                print(f"  {clean(message['error'])}")
        client_command.print_missing(answer)
        return exit_codes.DONE

    return client_command.run(arguments, show)
