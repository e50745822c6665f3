"""`ackd progress`: export or import a group's progress as JSON through a sidecar's admin port."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ackd.cli import exit_codes
from ackd.cli.client.admin import Admin, RefusedError
from ackd.cli.client.endpoint import subscription_action
from ackd.cli.commands.seek import add_way, move
from ackd.cli.offline.offsets_file import read_progress
from ackd.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd progress`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    subscription_action(actions, "export", "print the group's progress as JSON")
    taking = subscription_action(
        actions,
        "import",
        "set the group's progress from an export, or from RocketMQ's offsets.json",
    )
    taking.add_argument("file", type=Path, help="file to read; - reads standard input")
    taking.add_argument(
        "--overwrite",
        action="store_true",
        help="also move back; without it progress only moves ahead",
    )
    taking.add_argument(
        "--broker", metavar="NAME", help="take only this broker's queues of an offsets.json"
    )
    taking.add_argument(
        "--any-topic",
        action="store_true",
        help="also for topics that were deleted and made again since the export",
    )
    add_way(taking)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(sub.format_usage() for sub in actions.choices.values())


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen action; 2 when the sidecar refuses, 3 when it is unreachable."""
    return _export(arguments) if arguments.action == "export" else _import(arguments)


def _export(arguments: argparse.Namespace) -> int:
    with Admin.of(arguments) as admin:
        try:
            found = admin.get(("v1", "subscriptions", arguments.subscription, "progress"))
        except RefusedError as error:
            print(f"ackd: {error}", file=sys.stderr)
            return exit_codes.UNREACHABLE if error.away else exit_codes.CONFIG
    print(json.dumps(found, indent=1))
    return exit_codes.DONE


def _import(arguments: argparse.Namespace) -> int:
    text = sys.stdin.read() if str(arguments.file) == "-" else _text(arguments.file)
    body = read_progress(text, arguments.broker)
    if arguments.any_topic:
        for each in body["partitions"]:
            each.pop("topic_id", None)
    body["increase_only"] = not arguments.overwrite
    return move(arguments, "progress:import", body)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text") from error
