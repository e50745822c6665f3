"""`python -m tests.fuzz TARGET --seconds n`: fuzz one target with atheris (libFuzzer).

New inputs that reach more code go to `.cache/fuzz/corpus/TARGET`, one that fails to
`.cache/fuzz/found`; it is printed.
"""

import argparse
import importlib
import os
import subprocess
import sys

from tests.fuzz import TARGETS
from tests.fuzz.corpus import kept, written
from tests.support.other import FUZZ, packages
from tests.support.paths import CACHE, REPO

TIMEOUT_S = 5
MEMORY_MB = 2048
INPUT_BYTES_MAX = 4096


def command(target: str, seconds: int) -> list[str]:
    """What fuzzes one target in a process of its own."""
    found = CACHE / "fuzz" / "found"
    reached = CACHE / "fuzz" / "corpus" / target
    for folder in (found, reached):
        folder.mkdir(parents=True, exist_ok=True)
    return [
        *(sys.executable, "-m", "tests.fuzz", target, "--inside"),
        *(f"-max_total_time={seconds}", f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={MEMORY_MB}"),
        *(f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={found}/{target}-"),
        *(str(reached), str(written(target)), str(kept(target))),
    ]


def environ() -> dict[str, str]:
    """With the fuzzer among the modules."""
    paths = [str(packages(FUZZ)), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in paths if each)}


def _inside(target: str, options: list[str]) -> None:
    """In the process that has the fuzzer: never returns."""
    import atheris  # noqa: PLC0415  only there

    with atheris.instrument_imports(include=["ackd", "ackd_reports"]):
        module = importlib.import_module(f"tests.fuzz.{target}")
    atheris.Setup([target, *options], module.run)
    atheris.Fuzz()


def main() -> int:
    """Fuzz; the exit status of the fuzzer."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    run = command(arguments.target, arguments.seconds)
    return subprocess.run(run, cwd=REPO, env=environ(), check=False).returncode


if __name__ == "__main__":
    if "--inside" in sys.argv[2:3]:
        _inside(sys.argv[1], sys.argv[3:])
    sys.exit(main())
