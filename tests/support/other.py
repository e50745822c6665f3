"""Packages that cannot be in the environment of the tests, each set in a folder of its own.

A set is a group in pyproject.toml with a lock file, `requirements/<name>.lock`. It is installed at
first use into `.cache/<name>/<digest of the lock>`. `python -m tests.support.other NAME` prints the
folder, which is for PYTHONPATH.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.maven import made_once
from tests.support.paths import CACHE, REPO

PROOF, S3, SPARK35, CELERY, BOTO3_QUERY = "proof", "s3", "spark35", "celery", "boto3query"
ROCKETMQ_CLIENT, FUZZ = "rocketmqclient", "fuzz"


def packages(name: str) -> Path:
    """The folder of a set."""
    lock = REPO / "requirements" / f"{name}.lock"
    folder = CACHE / name / hashlib.sha256(lock.read_bytes()).hexdigest()[:12]

    def make() -> None:
        lib = folder / "lib"
        shutil.rmtree(lib, ignore_errors=True)
        # Not pip: it would compile thousands of files, of which few are loaded.
        command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--require-hashes"]
        command += ["--python", sys.executable, "--target", str(lib), "-r", str(lock)]
        subprocess.run(command, check=True, timeout=900)

    made_once(folder, make)
    return folder / "lib"


if __name__ == "__main__":
    sys.stdout.write(f"{packages(sys.argv[1])}\n")
