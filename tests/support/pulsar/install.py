"""Get the broker's archive from Maven once and unpack it into `.cache/pulsar/<key>`.

The archive is checked against its SHA-512, because it is used whole and not by a pom. A lock file
keeps concurrent runs from doing the work twice.
"""

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import maven
from tests.support.paths import CACHE

VERSION = "4.0.8"
_ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{VERSION}:tar.gz:bin"
_FILE = f"pulsar-server-distribution-{VERSION}-bin.tar.gz"
_SHA512 = (
    "65b769b10696cdfebf7fc5bcdc95dd663702e27051e616c1a13cb100e91279525be35352171befe7b0011176330aab29"
    "bd0a6c8a0f2f0646641af46d2e33cbd6"
)
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_OPENS = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_METADATA = "org.apache.pulsar.metadata.bookkeeper"
_DEFINES = (
    "java.net.preferIPv4Stack=true",
    "io.netty.tryReflectionSetAccessible=true",
    "org.apache.pulsar.shade.io.netty.tryReflectionSetAccessible=true",
    "pulsar.allocator.exit_on_oom=true",
    f"bookkeeper.metadata.bookie.drivers={_METADATA}.PulsarMetadataBookieDriver",
    f"bookkeeper.metadata.client.drivers={_METADATA}.PulsarMetadataClientDriver",
    "log4j2.is.webapp=false",
    "log4j.shutdownHookEnabled=false",
)
_LOG4J = """\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{HH:mm:ss.SSS} %-5p %c{1} %m%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
"""


@dataclass(frozen=True)
class Installation:
    """Where the unpacked archive and the log configuration lie."""

    folder: Path

    def java(self, *, heap_mb: int, direct_mb: int) -> list[str]:
        """The command line up to the main class's arguments."""
        return [
            "java",
            "-Xms64m",
            f"-Xmx{heap_mb}m",
            f"-XX:MaxDirectMemorySize={direct_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *(f"-D{each}" for each in _DEFINES),
            f"-Dlog4j.configurationFile={self.folder / 'log4j2.properties'}",
            "--enable-native-access=ALL-UNNAMED",
            *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENS),
            "-cp",
            f"{self.folder / f'apache-pulsar-{VERSION}' / 'lib'}/*",
            "org.apache.pulsar.PulsarStandaloneStarter",
        ]


def missing() -> str:
    """What is not installed that the broker needs, as a sentence; empty when all is there."""
    return maven.missing("Pulsar")


def install() -> Installation:
    """Return the installation, made on first use (245 MB, about 20 s)."""
    lack = missing()
    if lack:
        raise maven.BrokerMissingError(lack)
    found = Installation(CACHE / "pulsar" / _SHA512[:12])
    maven.made_once(found.folder, lambda: _make(found.folder))
    return found


def _make(folder: Path) -> None:
    _unpack(_fetch(folder), folder)
    (folder / "log4j2.properties").write_text(_LOG4J)


def _fetch(folder: Path) -> Path:
    maven.run(_COPY, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={folder}")
    archive = folder / _FILE
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha512").hexdigest()
    if digest != _SHA512:
        archive.unlink()
        raise RuntimeError(f"{_FILE} is not the archive that was expected: its SHA-512 is {digest}")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    # tar and not tarfile: its filters came with Python 3.11.4, and without one later ones warn.
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True, timeout=600)
    archive.unlink()
