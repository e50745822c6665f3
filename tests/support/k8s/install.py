"""Build a Kubernetes without kubelet from the Go module proxy, once for each go.sum.

`python -m tests.support.k8s.install` builds; `--yield`: only while nothing else runs. `CPU s` in
its lines is what a build took, however busy the machine was. The programs lie in the user's cache
folder and not in the repository's: they take minutes, and a fresh clone should not pay that again.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).parent / "binaries"
KUBERNETES = "v1.36.3"
GO_FOLDER = "/usr/local/go/bin"
OLDEST_GO = (1, 21)
"""From here on Go fetches the release that go.mod asks for by itself."""
PROGRAMS = {
    "helm4": "helm.sh/helm/v4/cmd/helm",
    "etcd": "go.etcd.io/etcd/server/v3",
    "controlplane": "./controlplane",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "helm3": "helm.sh/helm/v3/cmd/helm",
}
"""Sorted so that what others wait for comes first."""
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
    "pod/fast/pod-ready.yaml",
)
"""How kwok's nodes and pods behave; the files are in its module."""
_VERSION = "k8s.io/component-base/version"
_LINK = (
    f"-s -w -X {_VERSION}.gitVersion={KUBERNETES} "
    f"-X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor={KUBERNETES.split('.')[1]}"
)
_KNOWN_TO_HELM_3 = " ".join(
    f"-X helm.sh/helm/v3/pkg/{place}.k8sVersion{part}={number}"
    for place in ("chartutil", "lint/rules")
    for part, number in zip(("Major", "Minor"), KUBERNETES[1:].split("."), strict=False)
)
"""The Kubernetes that it renders for without a cluster; unsaid it is 1.20."""
_LINK_MORE = {"helm3": _KNOWN_TO_HELM_3}
_FLAGS = ("-trimpath", "-gcflags=all=-dwarf=false")
_BUILD_S_MAX = 3600


@dataclass(frozen=True)
class Installation:
    """Where the programs and kwok's stages lie."""

    folder: Path

    def program(self, name: str) -> Path:
        """The path of one of PROGRAMS."""
        return self.folder / name

    @property
    def stages(self) -> list[Path]:
        """Configuration files for kwok."""
        return [self.folder / Path(stage).name for stage in STAGES]

    @property
    def made(self) -> bool:
        """Whether all of it is there."""
        return (self.folder / "made").exists()


def found() -> Installation:
    """Where it is, or will be."""
    digest = hashlib.sha256(repr((_FLAGS, _LINK, _LINK_MORE, PROGRAMS, STAGES)).encode())
    for path in sorted(MODULE.rglob("*")):
        if path.is_file():
            digest.update(path.read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Installation(Path(home) / "ackd" / f"k8s-{digest.hexdigest()[:12]}")


def missing() -> str:
    """What is not there, as a sentence; empty when the programs are built."""
    if found().made:
        return ""
    lack = _go_missing()
    return lack or "Kubernetes is not built: python -m tests.support.k8s.install"


def install() -> Installation:
    """Return the installation, made on first use (ten minutes of a processor)."""
    target = found()
    target.folder.mkdir(parents=True, exist_ok=True)
    with (target.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.made:
            if lack := _go_missing():
                raise RuntimeError(lack)
            for name in PROGRAMS:
                _build(target, name)
            _copy_stages(target)
            (target.folder / "made").touch()
    return target


def _program() -> str | None:
    """Go's own archive lies outside of PATH until somebody puts it there."""
    return shutil.which("go") or shutil.which("go", path=GO_FOLDER)


def _go_missing() -> str:
    wanted = f"the tests on Kubernetes need Go {'.'.join(map(str, OLDEST_GO))} or newer"
    if _program() is None:
        return f"{wanted}; there is none in PATH nor in {GO_FOLDER}"
    said = _go("env", "GOVERSION")
    version = re.match(r"go(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < OLDEST_GO:
        return f"{wanted}; this is {said or 'older'}"
    return ""


def _go(*arguments: str) -> str:
    done = subprocess.run(
        [_program() or "go", *arguments],
        cwd=MODULE,
        # A compiler that collects its garbage less often is faster; it takes up to 2 GB.
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOGC": "400"},
        check=False,
        capture_output=True,
        text=True,
        timeout=_BUILD_S_MAX,
    )
    if done.returncode:
        raise RuntimeError(f"go {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout.strip()


def _build(target: Installation, name: str) -> None:
    path = target.program(name)
    if path.exists():
        return
    began, cpu = time.monotonic(), _cpu_s()
    part = path.with_suffix(".part")
    link = f"-ldflags={_LINK} {_LINK_MORE.get(name, '')}".strip()
    _go("build", *_FLAGS, link, "-o", str(part), PROGRAMS[name])
    part.rename(path)
    _say(
        f"{name}: {time.monotonic() - began:.0f} s, {_cpu_s() - cpu:.0f} CPU s, "
        f"{path.stat().st_size / 1e6:.0f} MB"
    )


def _copy_stages(target: Installation) -> None:
    source = Path(_go("list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")) / "kustomize" / "stage"
    for stage, path in zip(STAGES, target.stages, strict=True):
        shutil.copyfile(source / stage, path)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _yield_to_others() -> None:
    """Take only what nothing else on this machine wants.

    Linux shares the processors among sessions first, where it groups them (sched(7), autogroup),
    so being nice takes a session of our own that is nice as a whole.
    """
    with contextlib.suppress(PermissionError):  # we lead a group already
        os.setsid()
    os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")


if __name__ == "__main__":
    if "--yield" in sys.argv[1:]:
        _yield_to_others()
    try:
        _say(f"Kubernetes for the tests: {install().folder}")
    except RuntimeError as error:
        sys.exit(str(error))
