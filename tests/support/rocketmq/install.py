"""Get the broker's jars from Maven once; they lie in `.cache/rocketmq/<key of the pom>`."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.support.paths import CACHE

POM = Path(__file__).with_name("pom.xml")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class RocketMQMissingError(RuntimeError):
    """Java or Maven is not installed; the message says what to install."""


def missing() -> str:
    """What is not installed that the broker needs, as a sentence; empty when all is there."""
    tools = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if not tools:
        return ""
    return f"a real RocketMQ needs {' and '.join(tools)}; on Debian: tests/support/apt.sh"


def install() -> Path:
    """The folder with the jars, made on first use (102 MB, 26 s with an empty repository)."""
    lack = missing()
    if lack:
        raise RocketMQMissingError(lack)
    key = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    folder = CACHE / "rocketmq" / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            _copy_jars(folder / "lib")
            (folder / "made").touch()
    return folder / "lib"


def _copy_jars(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    command = ["mvn", "-B", "-ntp", "-q", "-f", str(POM), _COPY, "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={target}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"Maven could not fetch the broker:\n{done.stdout}{done.stderr}")
