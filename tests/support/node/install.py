"""Build kubelet and containerd from the Go module proxy, once for each go.sum.

`python -m tests.support.node.install` builds them, and says what each took. runc and the CNI
plug-ins are Debian's packages: runc is C and Go at once, and wants a library for seccomp.
"""

import hashlib
import json
import os
import shutil
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tests.support.golang import build, go
from tests.support.golang.build import Program
from tests.support.k8s.install import KUBERNETES

HERE = Path(__file__).parent
VERSION = "k8s.io/component-base/version"
LINK = "-s -w"
LINK_KUBELET = (
    f"{LINK} -X {VERSION}.gitVersion={KUBERNETES} "
    f"-X {VERSION}.gitMajor=1 -X {VERSION}.gitMinor={KUBERNETES.split('.')[1]}"
)
FLAGS = (
    "-trimpath",
    "-gcflags=all=-dwarf=false",
    "-tags=no_btrfs,no_devmapper,no_zfs,no_aufs",
)
PROGRAMS = {
    "kubelet": ("kubelet", "k8s.io/kubernetes/cmd/kubelet", LINK_KUBELET),
    "containerd": ("containerd", "github.com/containerd/containerd/v2/cmd/containerd", LINK),
    "containerd-shim-runc-v2": (
        "containerd",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        LINK,
    ),
    "ctr": ("containerd", "github.com/containerd/containerd/v2/cmd/ctr", LINK),
    "pause": ("containerd", "./pause", LINK),
}
"""Program: the folder of its module, its package, what the linker is told."""
CNI = Path("/usr/lib/cni")
PAUSE = "localhost/pause:1"
IMAGE = "localhost/ackd:test"


@dataclass(frozen=True)
class Installation(build.Installation):
    """PROGRAMS and the image of their pause."""

    @property
    def pause(self) -> Path:
        """The image that holds a pod's namespaces, as an archive."""
        return self.folder / "pause.tar"


def image_archive() -> Path:
    """Where `make image` puts the sidecar's image."""
    folder = os.environ.get("ACKD_IMAGE_FOLDER") or go.cache_home() / "image"
    return Path(folder) / "ackd.tar"


def found() -> Installation:
    """Where it is, or will be."""
    modules = [HERE / module for module in sorted({module for module, _, _ in PROGRAMS.values()})]
    return Installation(build.folder("node", (FLAGS, PROGRAMS), modules))


def missing() -> str:
    """What is not there, as a sentence; empty when a node can be started."""
    if not found().made:
        return "kubelet and containerd are not built: make test-node"
    if shutil.which("runc") is None or not (CNI / "bridge").exists():
        return "a node needs runc and the CNI plug-ins of Debian: make test-node"
    if not image_archive().exists():
        return "the image is not built: make image"
    return ""


def install() -> Installation:
    """Return the installation, made on first use (about three minutes of a processor)."""
    target = found()
    programs = {
        name: Program(HERE / module, package, link)
        for name, (module, package, link) in PROGRAMS.items()
    }
    build.make(target, programs, FLAGS, lambda: _pause_image(target))
    return target


def _pause_image(target: Installation) -> None:
    """An image of one program, in the format of `docker save`."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        _add(files, "pause", target.program("pause").read_bytes(), 0o755)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = {
        "architecture": _architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"]}]
    with tarfile.open(target.pause, "w") as image:
        _add(image, "layer.tar", layer.getvalue())
        _add(image, "config.json", json.dumps(config).encode())
        _add(image, "manifest.json", json.dumps(manifest).encode())


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    archive.addfile(info, BytesIO(data))


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _main() -> None:
    build.say(f"kubelet and containerd for the tests: {install().folder}")


if __name__ == "__main__":
    build.main(_main)
