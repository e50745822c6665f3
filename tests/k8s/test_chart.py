"""The chart: rendered by both Helms, checked against old and new Kubernetes, and by a server."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.k8s.release import golden_values, merge
from tests.support.k8s.api import Api, ApiError, Json
from tests.support.k8s.cluster import Cluster
from tests.support.k8s.helm import NAMESPACE, VERSIONS, Helm, HelmError

pytestmark = [pytest.mark.k8s, pytest.mark.usefixtures("programs")]
VALIDATE = str(Path(sys.executable).parent / "kubernetes-validate")
OLDEST, NEWEST = "1.29", "1.37"
FOREIGN_KINDS = frozenset(
    {
        *("Certificate", "Issuer", "PodMonitor", "PrometheusRule", "ServiceMonitor"),
        *("ScheduledSparkApplication", "SparkApplication"),
    }
)
"""Of other projects: their schemas are not Kubernetes' own."""


@pytest.fixture(params=VERSIONS)
def helm(request: pytest.FixtureRequest) -> Helm:
    return Helm(request.param)


@pytest.mark.parametrize("mode", ["webhook", "policy", "auto"])
def test_lint_finds_nothing(helm: Helm, mode: str) -> None:
    assert "[ERROR]" not in helm.lint(merge(golden_values(), {"injector": {"mode": mode}}))


@pytest.mark.parametrize("mode", ["webhook", "policy"])
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_valid_by_strict_schemas(
    helm: Helm, mode: str, version: str, tmp_path: Path
) -> None:
    if mode == "policy" and version == OLDEST:
        pytest.skip("there is no such policy in 1.29")
    things = helm.template(merge(all_options(), {"injector": {"mode": mode}}))
    own = [each for each in things if each["kind"] not in FOREIGN_KINDS]
    assert len(own) > 5
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(own))
    done = subprocess.run(
        [VALIDATE, "--strict", "-k", version, str(file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_server_takes_the_chart_with_all_options(cluster: Cluster, api: Api) -> None:
    """Server-side dry run: types, defaults, CEL of policies, quantities."""
    if not exists(api):
        api.namespace(NAMESPACE, {})
    for mode in ("webhook", "policy"):
        values = merge(all_options(), {"injector": {"mode": mode}})
        for thing in Helm("helm4", cluster.kubeconfig).template(values):
            if thing["kind"] not in FOREIGN_KINDS:
                api.apply(thing, dry_run=True)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"injector": {"mode": "magic"}}, "mode"),
        ({"injector": {"replicas": "two"}}, "replicas"),
        ({"injektor": {}}, "injektor"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, wrong: Json, name: str) -> None:
    with pytest.raises(HelmError) as refused:
        helm.template(merge(golden_values(), wrong))
    assert name in str(refused.value)


def test_the_same_values_render_the_same_text(helm: Helm) -> None:
    """No generated secret, no date: what GitOps tools compare stays equal."""
    assert helm.template(all_options()) == helm.template(all_options())


def test_both_helms_render_the_same() -> None:
    old, new = (by_name(Helm(version).template(all_options())) for version in VERSIONS)
    assert old == new


def test_no_bundle_is_rendered(helm: Helm) -> None:
    """Who patches it owns it alone."""
    assert "caBundle" not in str(helm.template(all_options()))


def all_options() -> Json:
    """Everything that can be switched on at once."""
    return merge(
        golden_values(),
        {
            "image": {"pullSecrets": [{"name": "registry"}]},
            "injector": {
                "networkPolicy": {
                    "enabled": True,
                    "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
                },
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "priorityClassName": "system-cluster-critical",
                "replicas": 3,
                "tolerations": [{"operator": "Exists"}],
            },
            "config": {
                "namespaces": ["default"],
                "brokers": {"main": {"type": "kafka", "servers": "kafka.data:9092"}},
                "subscriptions": {"orders": {"topic": "orders", "group": "shop"}},
            },
            "valkey": {"enabled": True, "storageClassName": "fast"},
            "monitoring": {
                name: {"enabled": True}
                for name in ("podMonitor", "serviceMonitor", "rules", "dashboard")
            },
            "reports": {"mode": "cronjob", "tracesClaim": "traces"},
        },
    )


def by_name(things: list[Json]) -> dict[tuple[str, str], Json]:
    """Objects by kind and name: each Helm has an order of its own."""
    return {(each["kind"], each["metadata"]["name"]): each for each in things}


def exists(api: Api) -> bool:
    """Whether the chart's namespace is there."""
    try:
        api.get(f"/api/v1/namespaces/{NAMESPACE}")
    except ApiError:
        return False
    return True
