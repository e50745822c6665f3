"""`ackd cancel`: end messages that are in flight, whoever holds them (admin port)."""

from __future__ import annotations

import argparse

from ackd.cli.client import client_command
from ackd.cli.client.admin import Admin, Json, RefusedError
from ackd.cli.figures import clean

PARTS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd cancel`."""
    client_command.add_arguments(parser, "name of the subscription")
    parser.add_argument(
        "messages",
        nargs="+",
        metavar="MESSAGE",
        help="topic/partition/offset as `ackd inflight` prints it, say orders/3/2101",
    )
    parser.add_argument(
        "--then",
        choices=("dead", "ack"),
        default="dead",
        help="what becomes of them: dead letters (default), or acked",
    )
    parser.add_argument(
        "--reason",
        default="",
        metavar="TEXT",
        help="why; the application that holds the lease can read it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Cancel the messages one by one; 2 when one was not in flight, 3 when the sidecar or its store
    is unreachable: the results of that message and of all later ones are unknown then.
    """
    body = {"then": arguments.then, "reason": arguments.reason}

    def do(admin: Admin) -> int:
        return client_command.each(
            arguments.messages,
            lambda message: _cancel(admin, arguments.subscription, message, body),
            named=str,
            in_words=client_command.one_line if arguments.json else _in_words,
        )

    return client_command.run(arguments, do)


def _in_words(answer: Json) -> str:
    return f"{clean(answer['id'])}  {clean(answer['state'])}"


def _cancel(admin: Admin, subscription: str, message: str, body: Json) -> Json:
    place = message.rsplit("/", PARTS - 1)
    if len(place) != PARTS:
        raise RefusedError("not a message's id, which is topic/partition/offset")
    return admin.post(("v1", "subscriptions", subscription, "messages", *place, "cancel"), body)
