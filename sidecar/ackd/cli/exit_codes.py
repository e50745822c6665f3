"""Exit codes, and the shape of a sub-command's module."""

from __future__ import annotations

import argparse
from typing import Protocol

DONE = 0
FAILED = 1
CONFIG = 2
UNREACHABLE = 3
BROKEN_PROMISE = 4
INTERRUPTED = 130

EXITS: dict[int, str] = {
    DONE: "done",
    FAILED: "failed unexpectedly; please report it",
    CONFIG: "wrong usage, or mistakes in the configuration",
    UNREACHABLE: "the store, a broker, a file or a listen address could not be used",
    BROKEN_PROMISE: "a check has found a broken promise (torture, demo)",
    INTERRUPTED: "interrupted from the keyboard",
}

EPILOG = "exit codes:\n" + "\n".join(f"  {code:<4} {text}" for code, text in EXITS.items())


class CommandModule(Protocol):
    """What `ackd.cli.main` asks of a sub-command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's own arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command; the exit code. May raise `AckdError` and `OSError`, which `main` prints
        as a sentence.
        """
