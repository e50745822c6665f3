"""The process of the command `ackd`, and of `python -m ackd`."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

from ackd.cli.main import main

SERVE = "serve"


def command() -> NoReturn:
    """Run the command line, and end the process.

    When `serve` returns, everything is told, flushed and closed. The interpreter is not taken down
    then: threads of a broker's native client may still be ending, and one that asks for the
    interpreter meanwhile ends the process with SIGABRT (Pulsar's does so,
    apache/pulsar-client-python issue 256).
    """
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if sys.argv[1:2] == [SERVE]:
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    command()
