"""Definitions of other projects' kinds that the chart makes, from the Go modules they lie in.

Nothing of those projects is built: the definitions let an API server check our objects strictly.
"""

import fcntl
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.golang import go


@dataclass(frozen=True)
class Module:
    """One version of a module, its hash as in go.sum, and the files that are wanted of it."""

    name: str
    version: str
    sum: str
    files: tuple[str, ...]


MODULES = (
    Module(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        tuple(
            f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
            for kind in ("podmonitors", "prometheusrules", "servicemonitors")
        ),
    ),
    Module(
        "github.com/cert-manager/cert-manager",
        "v1.21.2",
        "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
        tuple(f"deploy/crds/cert-manager.io_{kind}.yaml" for kind in ("certificates", "issuers")),
    ),
)


def files() -> list[Path]:
    """The definitions; fetched once for each change of MODULES. Raises go.GoError."""
    key = hashlib.sha256(repr(MODULES).encode()).hexdigest()[:12]
    folder = go.cache_home() / f"k8s-definitions-{key}"
    wanted = {folder / Path(file).name: (each, file) for each in MODULES for file in each.files}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for module in MODULES:
            mine = {path: file for path, (each, file) in wanted.items() if each is module}
            if not all(path.exists() for path in mine):
                source = _downloaded(module)
                for path, file in mine.items():
                    shutil.copyfile(source / file, path)
    return list(wanted)


def _downloaded(module: Module) -> Path:
    """Its folder in Go's cache, whose hash is the one we know."""
    with tempfile.TemporaryDirectory() as nowhere:  # no go.mod: none of its requirements is asked
        asked = f"{module.name}@{module.version}"
        said = json.loads(go.run("mod", "download", "-json", asked, cwd=Path(nowhere)))
    if said["Sum"] != module.sum:
        raise go.GoError(f"{asked} has the hash {said['Sum']} and not {module.sum}")
    return Path(said["Dir"])
