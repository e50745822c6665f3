"""Get Spark's jars for S3 from Maven once; they lie in `.cache/s3/<key of the pom>`."""

import hashlib
import shutil
from pathlib import Path

from tests.support import maven
from tests.support.paths import CACHE, REPO

POM = REPO / "spark_reports" / "s3" / "pom.xml"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def missing() -> str:
    """What is not installed that a report on S3 needs, as a sentence; empty when all is there."""
    return maven.missing("S3")


def jars() -> Path:
    """The folder with the jars (13 MB, 20 s with an empty repository)."""
    folder = CACHE / "s3" / hashlib.sha256(POM.read_bytes()).hexdigest()[:12]

    def make() -> None:
        lib = folder / "lib"
        shutil.rmtree(lib, ignore_errors=True)
        maven.run("-f", str(POM), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={lib}")

    maven.made_once(folder, make)
    return folder / "lib"
