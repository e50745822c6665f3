"""`ackd explain`: which message holds up each partition of a subscription, and what releases it."""

from __future__ import annotations

import argparse
import time

from ackd.cli import exit_codes
from ackd.cli.client import client_command
from ackd.cli.client.admin import Admin, Json
from ackd.cli.figures import clean
from ackd.cli.message_lines import message_line, ordered_line

WIDTH = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd explain`."""
    client_command.add_arguments(parser, "name of the subscription")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; 2 when the sidecar refuses, 3 when it is unreachable."""

    def show(admin: Admin) -> int:
        answer = admin.get(("v1", "subscriptions", arguments.subscription, "explain"))
        if arguments.json:
            client_command.print_json(answer)
        else:
            print("\n".join(lines(answer, time.time_ns() // 1_000_000)))
            client_command.print_missing(answer)
        return exit_codes.DONE

    return client_command.run(arguments, show)


def lines(answer: Json, now_ms: int) -> list[str]:
    """The sidecar's answer as text, partition by partition."""
    found = [f"held back: {clean(each)}" for each in answer["limits"]]
    if not found:
        found = ["nothing holds the whole subscription back"]
    found += [
        f"held back at {clean(name)}: {clean(each)}"
        for name, limits in answer["elsewhere"].items()
        for each in limits
    ]
    found += [ordered_line(each) for each in answer.get("ordered", ())]
    for each in answer["partitions"]:
        found.append(f"{clean(each['topic'])}/{each['partition']} at {each['watermark']}")
        if each["head"] is not None:
            found.append(f"  held by {message_line(each['head'], WIDTH, now_ms)}")
        found.append(f"  {clean(each['released_by'])}")
    if not answer["partitions"]:
        found.append("no sidecar that answers owns a partition of it")
    return found
