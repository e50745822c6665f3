"""The chart in a cluster, and pods for it to work on."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from ackd.inject.settings import parse
from tests.support.k8s.api import Api, ApiError, Json
from tests.support.k8s.cluster import Cluster
from tests.support.k8s.helm import Helm
from tests.support.k8s.injectors import Injectors, rendered_settings
from tests.support.paths import REPO
from tests.support.started import Started
from tests.support.wait import wait_until

MODES = ("webhook", "policy")
GOLDEN = REPO / "tests" / "unit" / "inject" / "golden"
SIDECAR = "ackd"
HASH = "ackd.dev/config-hash"
VERSION = "ackd.dev/version"
OPTED_IN = {"ackd.dev/inject": "true"}
WRONG = "ackd.dev/no-such"
INJECTING_S_MAX = 60.0
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What PodSecurity `restricted` wants of the application's own container."""


class Release(Started):
    """Installed, and injecting."""

    def __init__(
        self, cluster: Cluster, mode: str, *, helm: str = "helm4", options: tuple[str, ...] = ()
    ) -> None:
        self.cluster = cluster
        self.mode = mode
        self.injectors = Injectors(cluster, *options)
        self._helm = helm

    @property
    def hash(self) -> str:
        """Of the sidecar that new pods should get."""
        settings = parse(rendered_settings(self.cluster.api).encode(), "injector.json")
        return settings.hash_with("ackd-config")

    def start(self) -> Self:
        """Install it."""
        try:
            self.upgrade()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Take it away, and wait until nothing of it is asked any more."""
        Helm("helm4", self.cluster.kubeconfig).uninstall()
        self.injectors.stop()
        wait_until(
            lambda: not has_sidecar(probed(self.cluster.api, {})),
            "pods are left alone",
            timeout_s=INJECTING_S_MAX,
            interval_s=0.2,
            ignoring=(ApiError,),
        )

    def upgrade(self, values: Mapping[str, Any] | None = None, *, helm: str = "") -> None:
        """Give it these values beside the golden ones; returns when pods get the new sidecar."""
        merged = merge(golden_values(), {"injector": {"mode": self.mode}}, values or {})
        Helm(helm or self._helm, self.cluster.kubeconfig).upgrade(merged)
        if self.mode == "webhook":
            self.injectors.follow()
        self.wait_injecting()

    def wait_injecting(self) -> None:
        """Until a pod gets the sidecar of now, and a wrong one is refused: the API server hears of
        each change a bit later.
        """
        wait_until(
            lambda: hash_of(probed(self.cluster.api, OPTED_IN)) == self.hash and self._refuses(),
            f"pods get the sidecar, {self.mode}",
            timeout_s=INJECTING_S_MAX,
            interval_s=0.2,
            ignoring=(ApiError,),
        )

    def _refuses(self) -> bool:
        try:
            probed(self.cluster.api, {**OPTED_IN, WRONG: "x"})
        except ApiError as error:
            return WRONG in error.message
        return False


def probed(api: Api, annotations: Mapping[str, str]) -> Json:
    """The pod that the server would make now."""
    return api.create(pod("probe", "default", annotations), dry_run=True)


def golden_values() -> Json:
    """The values that the golden pods were made with."""
    found: Json = yaml.safe_load((GOLDEN / "values.yaml").read_text())
    return found


def merge(*trees: Mapping[str, Any]) -> Json:
    """Later ones win, key by key."""
    merged: Json = {}
    for tree in trees:
        for key, value in tree.items():
            old = merged.get(key)
            both = isinstance(old, dict) and isinstance(value, Mapping)
            merged[key] = merge(old or {}, value) if both else value
    return merged


def pod_spec(annotations: Mapping[str, str], **more: Any) -> Json:
    """A template: one container, as PodSecurity `restricted` wants it."""
    container = {"name": "app", "image": "app:1", "securityContext": RESTRICTED}
    return {
        "metadata": {"annotations": dict(annotations), "labels": {"app": "app"}},
        "spec": {"containers": [container], **more},
    }


def pod(name: str, namespace: str, annotations: Mapping[str, str], **more: Any) -> Json:
    """A bare pod."""
    made = {"apiVersion": "v1", "kind": "Pod", **pod_spec(annotations, **more)}
    made["metadata"] |= {"name": name, "namespace": namespace}
    return made


def workload(kind: str, namespace: str, annotations: Mapping[str, str], **more: Any) -> Json:
    """A Deployment, StatefulSet or Job named `app`; its pods are opted in by `annotations`."""
    template = pod_spec(annotations)
    spec: Json = {"template": template, **more}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"matchLabels": {"app": "app"}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "app", "namespace": namespace},
        "spec": spec,
    }


def has_sidecar(found: Json) -> bool:
    """Whether the first of the init containers is a native sidecar of ours."""
    containers: list[Json] = found["spec"].get("initContainers") or [{}]
    first = containers[0].get("name"), containers[0].get("restartPolicy")
    return first == (SIDECAR, "Always")


def hash_of(found: Json) -> str:
    """The annotation that says what was put in; empty without one."""
    return str(found["metadata"].get("annotations", {}).get(HASH, ""))


def listed(api: Api, namespace: str, folder: Path) -> list[Json]:
    """What `ackd pods` says."""
    token = folder / "token"
    token.write_text(api.token)
    command = [sys.executable, "-m", "ackd", "pods", "--json", "--namespace", namespace]
    access = ["--api-url", api.url, "--api-token-file", str(token)]
    done = subprocess.run(
        [*command, *access, "--api-ca-file", str(api.ca_file)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
