"""The command `ackd`: finds the sub-command, runs it, and turns failures into an exit code.

Every sub-command is a module with `add_arguments(parser)` and `run(arguments) -> int`. `main`
imports only the one that was called, so that `ackd version` does not wait for a broker's client
library. The distribution `ackd-tools`, which the image leaves out, has some of them and names them
in its entry points. `main` explains a user's mistake in a sentence; a traceback means a bug.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from ackd import __version__
from ackd.cli import exit_codes
from ackd.config.mistakes import MistakesError
from ackd.errors import AckdError, BrokerError, BugError, ConfigError, StoreError

LOG = logging.getLogger("ackd.cli")


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command and its module; without a module, an entry point in ENTRY_POINTS names it."""

    name: str
    text: str
    module: str = ""


ENTRY_POINTS = "ackd.commands"
"""The group in which `ackd-tools` names its commands."""

COMMANDS = (
    Command("serve", "run the sidecar", "ackd.cli.commands.serve"),
    Command(
        "check",
        "check the configuration and print what is in effect, with sources",
        "ackd.cli.commands.check",
    ),
    Command("top", "watch subscriptions: progress, what is stuck, rates"),
    Command("lag", "progress of each partition of a subscription", "ackd.cli.commands.lag"),
    Command(
        "inflight",
        "messages that are leased or wait for a retry, the oldest first",
        "ackd.cli.commands.inflight",
    ),
    Command(
        "messages",
        "unfinished messages of a subscription, or the state of one message",
        "ackd.cli.commands.messages",
    ),
    Command(
        "explain",
        "why a subscription does not go on, and what will end that",
        "ackd.cli.commands.explain",
    ),
    Command("lease", "look at a lease, or settle it", "ackd.cli.commands.lease"),
    Command(
        "drain",
        "make a sidecar deliver nothing more until it stops; it still settles",
        "ackd.cli.commands.drain",
    ),
    Command("cancel", "end messages in flight, whoever holds them", "ackd.cli.commands.cancel"),
    Command(
        "operations",
        "list seeks, imports, redrives and purges, or follow one to its end",
        "ackd.cli.commands.operations",
    ),
    Command("dead", "list, peek at, redrive and purge dead letters", "ackd.cli.commands.dead"),
    Command(
        "seek", "move a group's progress back or ahead, or undo that", "ackd.cli.commands.seek"
    ),
    Command(
        "progress", "export and import a group's progress as JSON", "ackd.cli.commands.progress"
    ),
    Command(
        "store", "list, measure and remove the records in the store", "ackd.cli.commands.store"
    ),
    Command(
        "adopt",
        "take over a group of plain consumers; `--plan` shows what would happen",
        "ackd.cli.commands.adopt",
    ),
    Command(
        "release-group",
        "hand a group back to plain consumers; `--plan` shows what would happen",
        "ackd.cli.commands.release_group",
    ),
    Command("demo", "show in a minute what ackd does, on a broker of its own"),
    Command("torture", "kill parts of a deployment and check that no promise breaks"),
    Command(
        "inject",
        "run or try the webhook that puts the sidecar into pods of Kubernetes",
        "ackd.cli.commands.inject",
    ),
    Command(
        "pods",
        "list pods with a sidecar, and which of them run an old one",
        "ackd.cli.commands.pods",
    ),
    Command(
        "report", "make reports on service levels from exported traces", "ackd.cli.commands.report"
    ),
    Command("openapi", "print the OpenAPI document of the HTTP API", "ackd.cli.commands.openapi"),
    Command("docs", "print a reference page made from the source", "ackd.cli.commands.docs"),
    Command("version", "print the version", "ackd.cli.commands.version"),
)

RENAMED = {"exit": "release-group"}
"""Old name of a command -> its name now, which the error message gives."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default this process's; returns the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = _parse(words)
        code = _module(arguments.command).run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe; the interpreter must not complain about that when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exit_codes.DONE
    except (AckdError, OSError) as error:
        return _explain(error)
    return int(code)


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """A parser that knows the arguments of the `chosen` command only. Raises ConfigError if that
    command is not installed.
    """
    parser = argparse.ArgumentParser(
        prog="ackd",
        description="Leases messages of Kafka and other brokers over HTTP, and keeps every ack.",
        epilog=exit_codes.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ackd {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for each in COMMANDS:
        sub = commands.add_parser(
            each.name,
            help=each.text,
            description=f"{each.text[0].upper()}{each.text[1:]}.",
            allow_abbrev=False,
        )
        if each.name == chosen:
            _module(each.name).add_arguments(sub)
    return parser


def _parse(words: list[str]) -> argparse.Namespace:
    names = {each.name for each in COMMANDS}
    command = next((word for word in words if not word.startswith("-")), "")
    if command in RENAMED:
        build_parser().error(f"`ackd {command}` is now `ackd {RENAMED[command]}`")
    chosen = next((word for word in words if word in names), None)
    return build_parser(chosen).parse_args(words)


def _module(name: str) -> exit_codes.CommandModule:
    command = next(each for each in COMMANDS if each.name == name)
    module: exit_codes.CommandModule
    if command.module:
        module = importlib.import_module(command.module)
        return module
    for found in entry_points(group=ENTRY_POINTS, name=name):
        module = found.load()
        return module
    raise ConfigError(
        f"`ackd {name}` is not installed here: pip install 'ackd[{name}]' "
        f"(in a clone: pip install '.[{name}]' ./sidecar/tools)"
    )


def _explain(error: AckdError | OSError) -> int:
    """Print a failure as a sentence, or a bug with its traceback; returns the exit code."""
    if isinstance(error, BugError):
        LOG.error("ackd broke a rule of its own; please report it", exc_info=error)
        return exit_codes.FAILED
    print(f"ackd: {error}", file=sys.stderr)
    if isinstance(error, MistakesError):
        return exit_codes.CONFIG
    if isinstance(error, ConfigError) and not isinstance(error.__cause__, OSError):
        # Another try can help after an OSError (an address in use, say), but not here.
        return exit_codes.CONFIG
    away = isinstance(error, ConfigError | BrokerError | StoreError | OSError)
    return exit_codes.UNREACHABLE if away else exit_codes.FAILED
