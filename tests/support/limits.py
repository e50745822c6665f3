"""Limits of time and rate, which a machine must be able to keep.

`make figures` checks those of the guarantees, on a machine without other work. Other runs check the
same counts against a bound that a busy machine keeps as well.
"""

import os

FIGURES = bool(os.environ.get("ACKD_TEST_FIGURES"))
"""Whether this run is to show what is promised."""


def limit(promised: int, *, busy: int) -> int:
    """What is promised if this run is to show it, else the bound for a busy machine."""
    return promised if FIGURES else busy
