"""`ackd demo`: the main job in a minute, with everything that goes wrong in a year."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ackd.cli import exit_codes
from ackd_demo.board import Board, Screen
from ackd_demo.story import HERE, Story, StoryError
from ackd_torture.checker import BROKEN, Verdict
from ackd_torture.child import BrokerPart, PartError
from ackd_torture.parts import Existing, LocalQueue, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ackd demo`."""
    parser.add_argument("--broker", choices=("local", "kafka"), default="local")
    parser.add_argument(
        "--kafka", metavar="HOST:PORT", help="with --broker kafka: a running Kafka to use"
    )
    parser.add_argument(
        "--parts", metavar="MODULE", help="importable module whose kafka() starts a Kafka"
    )
    parser.add_argument(
        "--traces", type=Path, metavar="FOLDER", help="write the sidecar's traces to this folder"
    )
    parser.add_argument(
        "--plain", action="store_true", help="print plain lines instead of a live board"
    )


def run(arguments: argparse.Namespace) -> int:
    """Play it; 0 when every promise was kept."""
    console = Console(highlight=False, force_terminal=False if arguments.plain else None)
    board = Board()
    screen = Screen(board, console)
    with tempfile.TemporaryDirectory(prefix="ackd-demo-", ignore_cleanup_errors=True) as temp:
        traces = arguments.traces and arguments.traces.absolute()
        story = Story(screen, board, Path(temp), _broker(arguments, Path(temp)), traces=traces)
        try:
            with screen.shown():
                verdict = asyncio.run(story.play())
        except StoryError as error:
            print(f"ackd demo: {error}", file=sys.stderr)
            for log in sorted(Path(temp).glob("**/*log")):
                tail = log.read_text(errors="replace").splitlines()[-5:]
                print("\n".join([f"--- {log.relative_to(temp)}", *tail]), file=sys.stderr)
            return exit_codes.BROKEN_PROMISE
    _ledger(console, verdict)
    return exit_codes.DONE if verdict.kept else exit_codes.BROKEN_PROMISE


def _broker(arguments: argparse.Namespace, folder: Path) -> BrokerPart:
    if arguments.broker == "local":
        return LocalQueue(folder)
    if arguments.kafka:
        return Existing(arguments.kafka)
    if arguments.parts:
        return load(arguments.parts, "kafka")
    raise PartError("--broker kafka needs --kafka HOST:PORT (or --parts MODULE, which starts one)")


def _ledger(console: Console, verdict: Verdict) -> None:
    """The end: what was promised and what happened."""
    table = Table(title="the ledger", title_justify="left", show_edge=False, show_header=False)
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_row("orders published", str(verdict.confirmed))
    table.add_row("delivered", str(verdict.delivered))
    table.add_row("acked", str(verdict.acked))
    table.add_row("redelivered, as they were not acked", str(verdict.redelivered))
    again = verdict.count("acked_then_redelivered")
    table.add_row("acked again", f"[{'red' if again else 'bold green'}]{again}[/]")
    table.add_row("lost", str(verdict.count("lost") + verdict.count("stranded")))
    console.print()
    console.print(table)
    for word in BROKEN:
        for finding in verdict.findings[word]:
            console.print(f"[red]{word}[/] {finding.msg}: {finding.text}")
    if verdict.kept:
        console.print(
            f"[green]Every promise kept.[/] The workers: {HERE}/worker.py and worker.sh",
            soft_wrap=True,
        )
    else:
        console.print("[red]A promise was broken.[/]")
