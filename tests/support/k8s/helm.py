"""Helm 3 and 4 on a cluster, or with none for rendering."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.k8s.api import Json
from tests.support.k8s.install import found
from tests.support.paths import REPO

CHART = REPO / "helm" / "ackd"
RELEASE = "ackd"
NAMESPACE = "ackd-system"
VERSIONS = ("helm3", "helm4")
_HELM_S_MAX = 120


class HelmError(Exception):
    """What helm said when it failed."""


@dataclass(frozen=True)
class Helm:
    """One version of helm; `kubeconfig` is None when it shall know of no cluster."""

    version: str
    kubeconfig: Path | None = None

    def run(self, *arguments: str) -> str:
        """Its output; raises HelmError."""
        with tempfile.TemporaryDirectory() as home:
            environ = {
                "PATH": os.environ["PATH"],
                "HOME": home,
                "KUBECONFIG": str(self.kubeconfig or Path(home) / "none"),
            }
            done = subprocess.run(
                [str(found().program(self.version)), *arguments],
                check=False,
                capture_output=True,
                text=True,
                env=environ,
                timeout=_HELM_S_MAX,
            )
        if done.returncode:
            raise HelmError(done.stderr or done.stdout)
        return done.stdout

    def template(self, values: Mapping[str, Any] | None = None, *more: str) -> list[Json]:
        """The chart's objects, rendered."""
        with tempfile.TemporaryDirectory() as folder:
            file = _values(Path(folder), values or {})
            text = self.run(
                "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "-f", str(file), *more
            )
        return [each for each in yaml.safe_load_all(text) if each]

    def lint(self, values: Mapping[str, Any] | None = None) -> str:
        """Its findings as errors."""
        with tempfile.TemporaryDirectory() as folder:
            file = _values(Path(folder), values or {})
            return self.run("lint", str(CHART), "--strict", "-f", str(file))

    def upgrade(self, values: Mapping[str, Any], more: Sequence[str] = ()) -> None:
        """Install, or upgrade with these values and no older ones."""
        with tempfile.TemporaryDirectory() as folder:
            file = _values(Path(folder), values)
            self.run(
                *("upgrade", RELEASE, str(CHART), "--install", "--namespace", NAMESPACE),
                *("--create-namespace", "--reset-values", "-f", str(file), *more),
            )

    def uninstall(self) -> None:
        """Remove the release, if there is one."""
        self.run("uninstall", RELEASE, "--namespace", NAMESPACE, "--ignore-not-found", "--wait")


def _values(folder: Path, values: Mapping[str, Any]) -> Path:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    return file
