"""Get the broker's jars from Maven once; they lie in `.cache/rocketmq/<key of the pom>`."""

import hashlib
import shutil
from pathlib import Path

from tests.support import maven
from tests.support.paths import CACHE

POM = Path(__file__).with_name("pom.xml")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def missing() -> str:
    """What is not installed that the broker needs, as a sentence; empty when all is there."""
    return maven.missing("RocketMQ")


def install() -> Path:
    """The folder with the jars, made on first use (102 MB, 26 s with an empty repository)."""
    lack = missing()
    if lack:
        raise maven.BrokerMissingError(lack)
    key = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    folder = CACHE / "rocketmq" / key
    maven.made_once(folder, lambda: _copy_jars(folder / "lib"))
    return folder / "lib"


def _copy_jars(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    maven.run("-f", str(POM), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={target}")
