"""`ackd lag`: show the progress of each partition of a subscription, and what each sidecar does."""

from __future__ import annotations

import argparse

from ackd.cli import exit_codes
from ackd.cli.client import client_command
from ackd.cli.client.admin import Admin, Json
from ackd.cli.figures import UNKNOWN, age, clean

TITLES = (
    "partition", "lag", "end", "unfinished", "committed", "done above", "ready", "leased",
    "waiting", "oldest", "owner",
)  # fmt: skip
SIDECAR_TITLES = (
    "sidecar", "partitions", "of the retry topic", "lag", "served: own", "for peers",
    "through peers",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd lag`."""
    client_command.add_arguments(parser, "name of the subscription")


def run(arguments: argparse.Namespace) -> int:
    """Print the table; 2 when the sidecar refuses, 3 when it is unreachable."""

    def show(admin: Admin) -> int:
        answer = admin.get(("v1", "subscriptions", arguments.subscription, "lag"))
        if arguments.json:
            client_command.print_json(answer)
        else:
            client_command.print_table(TITLES, (_row(each) for each in answer["partitions"]))
            print()
            client_command.print_table(SIDECAR_TITLES, map(_share, answer["sidecars"]))
            client_command.print_missing(answer)
        return exit_codes.DONE

    return client_command.run(arguments, show)


def _row(partition: Json) -> list[str]:
    """One line of the table. Of another sidecar's partition this one knows the owner only."""
    name = clean(f"{partition['topic']}/{partition['partition']}")
    if partition["watermark"] < 0:
        return [name, *[UNKNOWN] * (len(TITLES) - 2), clean(partition["owner"])]
    lag = max(partition["end"] - partition["watermark"], 0) if partition["end"] >= 0 else None
    numbers = [
        lag,
        *(partition[each] for each in ("end", "watermark", "committed", "done_above")),
        *(partition[each] for each in ("ready", "leased", "retrying")),
    ]
    shown = [UNKNOWN if each is None or each < 0 else str(each) for each in numbers]
    oldest_ms = partition["oldest_age_ms"]
    oldest = UNKNOWN if oldest_ms is None else age(oldest_ms / 1000)
    return [name, *shown, oldest, clean(partition["owner"])]


def _share(sidecar: Json) -> list[str]:
    """One line: what it owns, and what it has handed out since it began."""
    lag, served = sidecar["lag"], sidecar.get("served")
    owns = [str(sidecar[each]) for each in ("partitions", "retry_topic_partitions")]
    ways = ("own", "for_peers", "through_peers")
    handed_out = [UNKNOWN if served is None else str(served[each]) for each in ways]
    return [clean(sidecar["sidecar"]), *owns, UNKNOWN if lag < 0 else str(lag), *handed_out]
