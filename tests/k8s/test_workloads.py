"""Every kind of workload gets its sidecar, in both modes; what is not meant is left alone."""

import pytest

from tests.k8s.conftest import Namespaces
from tests.k8s.release import (
    OPTED_IN,
    VERSION,
    Release,
    has_sidecar,
    hash_of,
    pod,
    workload,
)
from tests.support.k8s.api import Api, ApiError, Json
from tests.support.wait import wait_until

pytestmark = [pytest.mark.k8s, pytest.mark.usefixtures("release")]
ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}


def pods_of(api: Api, namespace: str, count: int, *phases: str) -> list[Json]:
    """Wait for so many pods in one of these phases."""

    def found() -> list[Json]:
        pods = api.items(f"/api/v1/namespaces/{namespace}/pods")
        there = [each for each in pods if each["status"].get("phase") in phases]
        return there if len(there) == count == len(pods) else []

    return wait_until(found, f"{count} pods in {namespace}", interval_s=0.1)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_pods_of_a_workload_run_with_the_sidecar(
    release: Release, api: Api, namespace: Namespaces, kind: str
) -> None:
    """In a namespace that enforces PodSecurity `restricted`."""
    name = namespace(ENFORCED)
    api.create(workload(kind, name, OPTED_IN, replicas=2))
    for each in pods_of(api, name, 2, "Running"):
        assert has_sidecar(each)
        assert hash_of(each) == release.hash
        assert each["metadata"]["annotations"][VERSION]


def test_a_job_with_a_sidecar_completes(api: Api, namespace: Namespaces) -> None:
    name = namespace(ENFORCED)
    api.create(workload("Job", name, OPTED_IN))
    path = f"/apis/batch/v1/namespaces/{name}/jobs/app"

    def completed() -> bool:
        conditions = api.get(path).get("status", {}).get("conditions", [])
        return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)

    wait_until(completed, "the Job is complete", interval_s=0.1)
    assert all(has_sidecar(each) for each in pods_of(api, name, 1, "Succeeded"))


def test_a_bare_pod_runs_with_the_sidecar(api: Api, namespace: Namespaces) -> None:
    name = namespace(ENFORCED)
    api.create(pod("bare", name, OPTED_IN))
    assert all(has_sidecar(each) for each in pods_of(api, name, 1, "Running"))


def test_the_sidecar_comes_before_other_init_containers(api: Api, namespace: Namespaces) -> None:
    first = {"name": "prepare", "image": "app:1"}
    made = api.create(pod("app", namespace(), OPTED_IN, initContainers=[first]), dry_run=True)
    assert has_sidecar(made)
    assert [each["name"] for each in made["spec"]["initContainers"]] == ["ackd", "prepare"]


def test_a_plain_pod_is_left_alone(api: Api, namespace: Namespaces) -> None:
    made = api.create(pod("plain", namespace(), {}), dry_run=True)
    assert "initContainers" not in made["spec"]
    assert not hash_of(made)


def test_a_namespace_opts_in_and_a_pod_of_it_out(api: Api, namespace: Namespaces) -> None:
    name = namespace({"ackd.dev/inject": "true"})
    assert has_sidecar(api.create(pod("app", name, {}), dry_run=True))
    out = api.create(pod("app", name, {"ackd.dev/inject": "false"}), dry_run=True)
    assert "initContainers" not in out["spec"]


def test_the_sidecar_has_no_token_and_the_app_keeps_its_own(
    api: Api, namespace: Namespaces
) -> None:
    """The server puts a token's mount into each container that has none at that path."""
    made = api.create(pod("app", namespace(), OPTED_IN), dry_run=True)
    [sidecar], [app] = made["spec"]["initContainers"], made["spec"]["containers"]
    assert not any(each["name"].startswith("kube-api") for each in sidecar["volumeMounts"])
    assert any(each["name"].startswith("kube-api") for each in app["volumeMounts"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("ackd.dev/injct", "true"), ("ackd.dev/cpu", "much"), ("ackd.dev/inject", "yes")],
)
def test_a_wrong_annotation_is_refused_with_its_name(
    api: Api, namespace: Namespaces, name: str, value: str
) -> None:
    with pytest.raises(ApiError) as refused:
        api.create(pod("app", namespace(), {**OPTED_IN, name: value}))
    assert name in refused.value.message


def test_who_owns_a_refused_pod_can_read_why(api: Api, namespace: Namespaces) -> None:
    """A Deployment shows nothing; the events of its ReplicaSet do."""
    name = namespace()
    wrong = {**OPTED_IN, "ackd.dev/injct": "true"}
    api.create(workload("Deployment", name, wrong, replicas=1))

    def told() -> list[str]:
        events = api.items(f"/api/v1/namespaces/{name}/events")
        return [each["message"] for each in events if "ackd.dev/injct" in each["message"]]

    assert wait_until(told, "an event that names the annotation", interval_s=0.2)


def test_done_again_it_changes_nothing(api: Api, namespace: Namespaces) -> None:
    """Another webhook after ours can have the server ask again."""
    name = namespace()
    once = api.create(pod("app", name, OPTED_IN), dry_run=True)
    again = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "app",
            "namespace": name,
            "annotations": once["metadata"]["annotations"],
        },
        "spec": once["spec"],
    }
    twice = api.create(again, dry_run=True)
    assert twice["spec"] == once["spec"]
    assert twice["metadata"]["annotations"] == once["metadata"]["annotations"]
