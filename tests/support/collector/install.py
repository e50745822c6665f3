"""Build the OpenTelemetry Collector from the Go module proxy, once for each go.sum.

`python -m tests.support.collector.install` builds; `--yield`: with time that nobody else wants.
"""

from pathlib import Path

from tests.support.golang import build
from tests.support.golang.build import Installation, Program

MODULE = Path(__file__).parent / "program"
NAME = "collector"
_LINK = "-s -w"
_FLAGS = ("-trimpath", "-gcflags=all=-N -l -dwarf=false")
"""Without the optimiser: it is built in less time, and answers fast enough."""


def found() -> Installation:
    """Where it is, or will be."""
    return Installation(build.folder(NAME, (_FLAGS, _LINK), [MODULE]))


def missing() -> str:
    """What is not there, as a sentence; empty when it is built."""
    return "" if found().made else "the collector is not built: make test-collector"


def install() -> Installation:
    """Return the installation, made on first use (three minutes of a processor)."""
    target = found()
    build.make(target, {NAME: Program(MODULE, ".", _LINK)}, _FLAGS)
    return target


if __name__ == "__main__":
    build.main(lambda: build.say(f"the collector for the tests: {install().folder}"))
