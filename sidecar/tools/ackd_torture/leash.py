"""Run a program that dies with its parent: `python leash.py PROGRAM ARGUMENT...`.

A torture run may itself be killed with -9; what it started must not stay. Linux sends the signal
asked for here when the thread that started this process ends, and the setting survives `exec`. The
file is run as a script and imports nothing else, so that it costs a few milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, make sure that it is not too late for it, become the program."""
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 -- becoming the program is the point


if __name__ == "__main__":
    main()
