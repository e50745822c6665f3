"""Build a Kubernetes without kubelet from the Go module proxy, once for each go.sum.

`python -m tests.support.k8s.install` builds; `--yield`: with time that nobody else wants.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.support.golang import build, go
from tests.support.golang.build import Program
from tests.support.k8s import definitions

MODULE = Path(__file__).parent / "binaries"
KUBERNETES = "v1.36.3"
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
_OPTIMISED = "" if os.environ.get("ACKD_TEST_K8S_OPTIMISED") else "-N -l "
"""Without the optimiser they are built in two thirds of the time, and answer more slowly."""
_FLAGS = ("-trimpath", f"-gcflags=all={_OPTIMISED}-dwarf=false")


@dataclass(frozen=True)
class Installation(build.Installation):
    """PROGRAMS and kwok's stages."""

    @property
    def stages(self) -> list[Path]:
        """Configuration files for kwok."""
        return [self.folder / Path(stage).name for stage in STAGES]


def found() -> Installation:
    """Where it is, or will be."""
    known = (_FLAGS, _LINK, _LINK_MORE, PROGRAMS, STAGES)
    return Installation(build.folder("k8s", known, [MODULE]))


def missing() -> str:
    """What is not there, as a sentence; empty when the programs are built."""
    if found().made:
        return ""
    return "Kubernetes is not built: make k8s-binaries"


def install() -> Installation:
    """Return the installation, made on first use (ten minutes of a processor)."""
    target = found()
    programs = {
        name: Program(MODULE, package, f"{_LINK} {_LINK_MORE.get(name, '')}".strip())
        for name, package in PROGRAMS.items()
    }
    build.make(target, programs, _FLAGS, lambda: _copy_stages(target))
    return target


def _copy_stages(target: Installation) -> None:
    kwok = go.run("list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok", cwd=MODULE)
    source = Path(kwok) / "kustomize" / "stage"
    for stage, path in zip(STAGES, target.stages, strict=True):
        shutil.copyfile(source / stage, path)


def _main() -> None:
    build.say(f"Kubernetes for the tests: {install().folder}")
    definitions.files()


if __name__ == "__main__":
    build.main(_main)
