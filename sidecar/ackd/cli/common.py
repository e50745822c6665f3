"""What several commands share: the `--config` argument, and running an event loop."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

from ackd.config.load import load
from ackd.config.schema import Settings

T = TypeVar("T")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Declare `--config`, which `load` reads."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file (TOML); default: what ACKD_CONFIG names, else none",
    )


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings of file and environment. Raises `MistakesError`."""
    return load(arguments.config, os.environ)


def run_loop(work: Coroutine[None, None, T]) -> T:
    """Run to its end, on uvloop where it is installed (the extra `uvloop`)."""
    try:
        import uvloop  # noqa: PLC0415  optional
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
