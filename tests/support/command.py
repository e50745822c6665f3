"""A command line of `ackd` within this process: a second less than a process of its own."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from ackd.cli.main import main


@dataclass(frozen=True)
class Done:
    """How it ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


def ackd(config: Path, *words: str, given: str = "") -> Done:
    """Run it with this configuration and this standard input."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("ACKD_CONFIG", str(config))
        patch.setattr(sys, "stdin", io.StringIO(given))
        try:
            code = main(words)
        except SystemExit as end:  # argparse
            code = end.code if isinstance(end.code, int) else 1
    return Done(code, out.getvalue(), err.getvalue())
