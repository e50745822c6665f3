"""Go: the one that is here, or the release that Go's module proxy has, in the user's cache folder.

From `OLDEST` on Go fetches the release that a go.mod asks for by itself. Where there is none, the
archive `golang.org/toolchain` of the proxy is the same thing that such a Go would fetch
(https://go.dev/doc/toolchain); its checksum is the one of Go's public log.
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import zipfile
from functools import cache
from pathlib import Path

FOLDER = "/usr/local/go/bin"
"""Go's own archive lies here, outside of PATH until somebody puts it there."""
OLDEST = (1, 21)
VERSION = "1.26.8"
SUMS = {"linux-amd64": "h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM="}
"""By system: the hash of `golang.org/toolchain` as go.sum writes it."""
ATTEMPTS = 4
_RETRY_S = 10.0
_RUN_S_MAX = 3600
_FETCH_S_MAX = 120
_AWAY = re.compile(r"dial |i/o timeout|connection re|TLS handshake|\bEOF\b|: 5\d\d |no such host")
"""What Go says when a download failed; it does not try again by itself."""


class GoError(RuntimeError):
    """There is no Go, or what it said when it failed."""


def cache_home() -> Path:
    """Where what is dear to make outlives a clone."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ackd"


def run(*arguments: str, cwd: Path) -> str:
    """Its output; a download that fails is tried again. Raises GoError."""
    environ = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        # A compiler that collects its garbage less often is faster; it takes up to 2 GB.
        "GOGC": "400",
    }
    said = ""
    for attempt in range(1, ATTEMPTS + 1):
        done = subprocess.run(
            [program(), *arguments],
            cwd=cwd,
            env=environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=_RUN_S_MAX,
        )
        if done.returncode == 0:
            return done.stdout.strip()
        said = done.stderr or done.stdout
        if attempt == ATTEMPTS or not _AWAY.search(said):
            break
        time.sleep(_RETRY_S * attempt)
    raise GoError(f"go {' '.join(arguments)} failed:\n{said}")


@cache
def program() -> str:
    """The path of a Go that is new enough, fetched if there is none. Raises GoError."""
    for found in (shutil.which("go"), shutil.which("go", path=FOLDER)):
        if found and _new_enough(found):
            return found
    return str(_fetched(cache_home() / f"go-{VERSION}"))


def _new_enough(path: str) -> bool:
    done = subprocess.run(
        [path, "env", "GOVERSION"], check=False, capture_output=True, text=True, timeout=60
    )
    version = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= OLDEST


def _fetched(folder: Path) -> Path:
    program_path = folder / "bin" / "go"
    if program_path.exists():
        return program_path
    system = f"{sys.platform}-{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine()) }"
    if system not in SUMS:
        wanted = ".".join(map(str, OLDEST))
        raise GoError(f"needed: Go {wanted} or newer, in PATH or {FOLDER}; none is known here")
    part = folder.with_suffix(f".part-{os.getpid()}")
    part.mkdir(parents=True, exist_ok=True)
    try:
        archive = part / "go.zip"
        _download(_address(system), archive)
        unpack(archive, part / "go", SUMS[system])
        (part / "go").rename(folder)
    finally:
        shutil.rmtree(part)
    return program_path


def _address(system: str) -> str:
    proxies = re.split(r"[,|]", os.environ.get("GOPROXY") or _default_proxies())
    proxy = next((each.strip() for each in proxies if "://" in each), None)
    if proxy is None:
        wanted = ".".join(map(str, OLDEST))
        raise GoError(
            f"needed: Go {wanted} or newer, in PATH or {FOLDER}; or GOPROXY, the address of a "
            "module proxy, or an older Go that knows one, to fetch it from"
        )
    return f"{proxy.rstrip('/')}/golang.org/toolchain/@v/v0.0.1-go{VERSION}.{system}.zip"


def _default_proxies() -> str:
    """What a Go that is too old to build with would ask; empty without one."""
    for found in filter(None, (shutil.which("go"), shutil.which("go", path=FOLDER))):
        done = subprocess.run(
            [found, "env", "GOPROXY"], check=False, capture_output=True, text=True, timeout=60
        )
        if done.returncode == 0:
            return done.stdout
    return ""


def _download(address: str, target: Path) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with (
                urllib.request.urlopen(address, timeout=_FETCH_S_MAX) as answer,  # noqa: S310 -- a proxy's
                target.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
        except OSError as error:
            if attempt == ATTEMPTS:
                raise GoError(f"there is no Go here, and {address} failed: {error}") from error
            time.sleep(_RETRY_S * attempt)
        else:
            return


def unpack(archive: Path, target: Path, wanted: str) -> None:
    """Unpack a module's archive when its hash is the wanted one; else GoError.

    The hash is that of go.sum (https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash, Hash1): of the
    names and hashes of the files, in order of the names. Archives of modules carry no modes.
    """
    with zipfile.ZipFile(archive) as files:
        total = hashlib.sha256()
        for name in sorted(files.namelist()):
            digest = hashlib.sha256(files.read(name)).hexdigest()
            total.update(f"{digest}  {name}\n".encode())
        found = f"h1:{base64.b64encode(total.digest()).decode()}"
        if found != wanted:
            raise GoError(f"{archive.name} has the hash {found} and not {wanted}")
        for name in files.namelist():
            path = target / name.partition("@")[2].partition("/")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files.read(name))
            if path.parent.name == "bin" or "tool" in path.parts:
                path.chmod(0o755)
