"""Get the broker's jars from Maven once, and make an archive of loaded classes for fast starts.

Everything lies in `.cache/kafka/<key>`; the key names the pom and the Java version, so that a
change of either makes a new one. A lock file keeps concurrent runs from doing the work twice.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ackd_torture.ports import free_port, give_back
from tests.support import maven
from tests.support.paths import CACHE, remove_run_dir, run_dir
from tests.support.proc import Process

POM = Path(__file__).with_name("pom.xml")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_LOG4J = """\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{HH:mm:ss.SSS} %-5p %c{1} %m%n
rootLogger.level=info
rootLogger.appenderRef.console.ref=console
"""


@dataclass(frozen=True)
class Installation:
    """Where the jars, the class archive and the log configuration lie."""

    folder: Path

    @property
    def archive(self) -> Path:
        """The class data archive that halves the start time."""
        return self.folder / "kafka.jsa"

    def java(self, *, heap_mb: int, extra: Sequence[str] = ()) -> list[str]:
        """The command line up to the main class; the archive demands the same class path."""
        jars = sorted(str(path) for path in (self.folder / "lib").glob("*.jar"))
        return [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xms64m",
            f"-Xmx{heap_mb}m",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            *extra,
            "-cp",
            ":".join(jars),
        ]


def missing() -> str:
    """What is not installed that the broker needs, as a sentence; empty when all is there."""
    return maven.missing("Kafka")


def install() -> Installation:
    """Return the installation, made on first use (about 20 s with an empty Maven repository)."""
    lack = missing()
    if lack:
        raise maven.BrokerMissingError(lack)
    version = subprocess.run(
        ["java", "-version"], check=True, capture_output=True, text=True, timeout=180
    ).stderr
    key = hashlib.sha256(POM.read_bytes() + version.encode()).hexdigest()[:12]
    found = Installation(CACHE / "kafka" / key)
    maven.made_once(found.folder, lambda: _make(found))
    return found


def _make(target: Installation) -> None:
    _copy_jars(target)
    _make_archive(target)


def _copy_jars(target: Installation) -> None:
    shutil.rmtree(target.folder / "lib", ignore_errors=True)
    (target.folder / "log4j2.properties").write_text(_LOG4J)
    lib = target.folder / "lib"
    maven.run("-f", str(POM), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={lib}")


def _make_archive(target: Installation) -> None:
    """Run a broker once and let Java write down the classes it loaded."""
    from tests.support.kafka.config import server_properties  # noqa: PLC0415 -- it imports us not

    folder = run_dir("kafka-archive")
    ports = [free_port(), free_port()]
    properties = folder / "server.properties"
    text = server_properties(1, {1: ports[0]}, {1: ports[1]}, folder / "data")
    properties.write_text(text)
    format_storage(target, properties, ())
    argv = target.java(heap_mb=256, extra=[f"-XX:ArchiveClassesAtExit={target.archive}"])
    broker = Process([*argv, "kafka.Kafka", properties], log_path=folder / "broker.log")
    try:
        broker.start()
        broker.wait_for_log("Kafka Server started", 240)
        broker.terminate(120)
    finally:
        broker.kill()
        give_back(*ports)
        remove_run_dir(folder)


def format_storage(target: Installation, properties: Path, extra: Sequence[str]) -> None:
    """Prepare an empty data folder for a broker. All brokers of a cluster share the fixed id."""
    # While the archive is made there is none, which Java takes as it is.
    argv = target.java(heap_mb=128, extra=[f"-XX:SharedArchiveFile={target.archive}"])
    tool = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA"]
    done = subprocess.run(
        [*argv, *tool, "-c", str(properties), *extra],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"formatting the broker's storage failed:\n{done.stdout}{done.stderr}")
