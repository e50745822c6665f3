"""docs/operate/kubernetes.md: what its five minutes tell to type, on a real API server."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.k8s.release import has_sidecar, pod, probed
from tests.support.k8s.api import Api, ApiError, Json
from tests.support.k8s.cluster import Cluster
from tests.support.k8s.helm import RELEASE, VERSIONS, Helm
from tests.support.k8s.install import found
from tests.support.paths import REPO
from tests.support.wait import wait_until

pytestmark = [pytest.mark.k8s, pytest.mark.usefixtures("programs")]

PAGE = (REPO / "docs/operate/kubernetes.md").read_text()
Type = Callable[[str], str]


def blocks(kind: str) -> list[str]:
    """Those of the section in one language, in their order."""
    section = PAGE.partition("\n## Five minutes\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{kind}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@pytest.fixture(params=VERSIONS)
def type_in(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Type]:
    """Types a command in a clone, where `helm` is one of both versions."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "helm").symlink_to(found().program(request.param))
    (tmp_path / "helm").symlink_to(REPO / "helm")
    environ = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(cluster.kubeconfig),
    }

    def typed(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    yield typed
    Helm("helm4", cluster.kubeconfig).uninstall()


@pytest.fixture
def shop(api: Api) -> Iterator[str]:
    """The namespace that the page speaks of."""
    yield api.namespace("shop", {})
    api.delete("/api/v1/namespaces/shop")
    wait_until(lambda: not _there(api, "shop"), "the namespace is gone", interval_s=0.1)


def _there(api: Api, namespace: str) -> bool:
    return any(each["metadata"]["name"] == namespace for each in api.items("/api/v1/namespaces"))


def test_five_minutes(type_in: Type, api: Api, shop: str, tmp_path: Path) -> None:
    values, annotated = blocks("yaml")
    (tmp_path / "values.yaml").write_text(values)
    commands = [line for block in blocks("text") for line in block.splitlines()]
    first, install, check, *rest = commands
    assert first == f"kubectl create namespace {shop}"  # there is no kubectl here
    assert all(each.startswith("kubectl ") for each in rest)
    assert "is installed" in type_in(install)
    annotations: dict[str, str] = yaml.safe_load(annotated)["metadata"]["annotations"]
    wait_until(
        lambda: has_sidecar(api.create(pod("app", shop, annotations), dry_run=True)),
        "pods get the sidecar",
        interval_s=0.2,
        ignoring=(ApiError,),
    )
    assert not has_sidecar(probed(api, {}))
    [tester] = [
        each
        for each in yaml.safe_load_all(type_in(f"helm get hooks {RELEASE} -n ackd-system"))
        if each["kind"] == "Pod"
    ]
    made = api.create(tester, dry_run=True)
    assert has_sidecar(made)
    assert lacking(api, made) == []
    with ThreadPoolExecutor(1) as beside:
        checked = beside.submit(type_in, check)
        succeed(api, made)
        assert "Succeeded" in checked.result(timeout=90)


def succeed(api: Api, made: Json) -> None:
    """Say of a pod what a kubelet says when it ends well: in pods of kwok nothing runs."""
    name, namespace = (made["metadata"][key] for key in ("name", "namespace"))
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    wait_until(
        lambda: api.get(path)["status"].get("phase") == "Running",
        "the pod of the test runs",
        interval_s=0.1,
        ignoring=(ApiError,),
    )
    ended = {"status": {"phase": "Succeeded"}}
    api.call("PATCH", f"{path}/status", ended, "application/merge-patch+json")


def lacking(api: Api, made: Json) -> list[str]:
    """ConfigMaps that a pod mounts, and that are not in its namespace: it would never start."""
    there = api.items(f"/api/v1/namespaces/{made['metadata']['namespace']}/configmaps")
    names = {each["metadata"]["name"] for each in there}
    mounted = [each["configMap"]["name"] for each in made["spec"]["volumes"] if "configMap" in each]
    assert mounted
    return [name for name in mounted if name not in names]
