"""The chart: rendered by both Helms, checked against old and new Kubernetes, and by a server."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.k8s.release import golden_values, merge
from tests.support.k8s import definitions
from tests.support.k8s.api import Api, ApiError, Json, collection
from tests.support.k8s.cluster import Cluster
from tests.support.k8s.helm import NAMESPACE, VERSIONS, Helm, HelmError
from tests.support.wait import wait_until

pytestmark = [pytest.mark.k8s, pytest.mark.usefixtures("programs")]
VALIDATE = str(Path(sys.executable).parent / "kubernetes-validate")
OLDEST, NEWEST = "1.29", "1.37"
VERSIONS_OF_KUBERNETES = (OLDEST, "1.31", NEWEST)
FOREIGN_KINDS = frozenset(
    {
        *("Certificate", "Issuer", "PodMonitor", "PrometheusRule", "ServiceMonitor"),
        *("ScheduledSparkApplication", "SparkApplication"),
    }
)
"""Of other projects: their schemas are not Kubernetes' own."""
UNKNOWN_KINDS = frozenset({"ScheduledSparkApplication", "SparkApplication"})
"""The module of the Spark operator is not to be had everywhere."""


@pytest.fixture(params=VERSIONS)
def helm(request: pytest.FixtureRequest) -> Helm:
    return Helm(request.param)


@pytest.mark.parametrize("mode", ["webhook", "policy", "auto"])
def test_lint_finds_nothing(helm: Helm, mode: str) -> None:
    assert "[ERROR]" not in helm.lint(merge(golden_values(), {"injector": {"mode": mode}}))


@pytest.mark.parametrize("mode", ["webhook", "policy"])
@pytest.mark.parametrize("version", VERSIONS_OF_KUBERNETES)
def test_every_object_is_valid_by_strict_schemas(
    helm: Helm, mode: str, version: str, tmp_path: Path
) -> None:
    if mode == "policy" and version != NEWEST:
        pytest.skip(f"there is no such policy in {version}")
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


def test_objects_of_other_projects_fit_their_definitions(cluster: Cluster, api: Api) -> None:
    """Unknown fields are refused; what no module of these projects has is left out."""
    made = [yaml.safe_load(path.read_text()) for path in definitions.files()]
    for each in made:
        api.apply(each)
    kinds = {each["spec"]["names"]["kind"] for each in made}
    assert kinds == FOREIGN_KINDS - UNKNOWN_KINDS
    if not exists(api):
        api.namespace(NAMESPACE, {})
    values = {"injector": {"mode": "webhook", "certManager": {"enabled": True}}}
    things = Helm("helm4", cluster.kubeconfig).template(merge(all_options(), values))
    foreign = [each for each in things if each["kind"] in kinds]
    assert {each["kind"] for each in foreign} == kinds
    for thing in foreign:
        path = f"{collection(thing)}/{thing['metadata']['name']}"
        wait_until(functools.partial(served, api, path), f"{thing['kind']} is served")
        checked(api, path, thing)
        with pytest.raises(ApiError, match=r"speck|unknown|not declared"):
            checked(api, path, merge(thing, {"spec": {"speck": 1}}))


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


def test_a_policy_for_pods_with_sidecars(helm: Helm) -> None:
    """Metrics for whom it says, the application's ports, and nothing else; out only if limited."""
    full = sidecars_policy(helm, all_options())
    assert full["podSelector"] == {"matchLabels": {"app": "orders"}}
    assert full["policyTypes"] == ["Ingress", "Egress"]
    metrics, application = full["ingress"]
    assert metrics["ports"] == [{"port": 7082, "protocol": "TCP"}]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"team": "watch"}}}]
    assert application == {"ports": [{"port": 8080, "protocol": "TCP"}]}
    assert full["egress"] == [{"ports": [{"port": 9092, "protocol": "TCP"}]}]
    least = sidecars_policy(helm, {"sidecar": {"networkPolicy": {"enabled": True}}})
    assert least == {
        "podSelector": {},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": 7082, "protocol": "TCP"}]}],
    }


def test_sidecars_are_linked_with_those_of_their_subscriptions_only(helm: Helm) -> None:
    """Both ends of a link are pods whose ConfigMaps are in one list, wherever they are."""
    values = {"linked": [["orders", "orders-batch"], ["bills"]]}
    options = merge(all_options(), {"sidecar": {"networkPolicy": values}})
    ports = [{"port": 7083, "protocol": "TCP"}]
    for number, names in enumerate(values["linked"]):
        pods = {
            "matchLabels": {"app": "orders"},
            "matchExpressions": [{"key": "ackd.dev/config", "operator": "In", "values": names}],
        }
        ends = [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": each}},
                "podSelector": pods,
            }
            for each in options["config"]["namespaces"]
        ]
        assert ends
        assert sidecars_policy(helm, options, f"-links-{number}") == {
            "podSelector": pods,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": ports, "from": ends}],
            "egress": [{"ports": ports, "to": ends}],
        }
    least = sidecars_policy(helm, {"sidecar": {"networkPolicy": {"enabled": True}}}, "-links-0")
    mine = {"key": "ackd.dev/config", "operator": "In", "values": ["ackd-config"]}
    assert least["podSelector"] == {"matchExpressions": [mine]}
    assert [each["podSelector"] for each in least["ingress"][0]["from"]] == [least["podSelector"]]


def test_only_pods_with_a_sidecar_are_scraped(helm: Helm) -> None:
    [monitor] = of_kind(helm, all_options(), "PodMonitor")
    assert monitor["spec"]["selector"] == {
        "matchExpressions": [{"key": "ackd.dev/config", "operator": "Exists"}]
    }


def test_the_depth_at_which_dead_letters_are_too_many_is_a_value(helm: Helm) -> None:
    for value, depth in (
        ({}, 1000),
        ({"deadLetterDepth": 0}, 0),
        ({"deadLetterDepth": 99_999}, 99_999),
    ):
        rules: Json = {"enabled": True, **value}
        [made] = of_kind(helm, {"monitoring": {"rules": rules}}, "PrometheusRule")
        [expr] = [
            rule["expr"]
            for group in made["spec"]["groups"]
            for rule in group["rules"]
            if rule["alert"] == "AckdManyDeadLetters"
        ]
        assert expr.endswith(f"(ackd_dead_letter_depth) > {depth}")


def test_alerts_link_to_a_runbook_that_can_be_opened(helm: Helm) -> None:
    """By a value; without it, to the file of the repository."""
    address = "https://wiki.example/ackd?page=runbook"
    rules: Json = {"enabled": True, "runbookUrl": address}
    for value, start in ((address, address), ("", "docs/operate/runbook.md")):
        rules["runbookUrl"] = value
        [made] = of_kind(helm, {"monitoring": {"rules": rules}}, "PrometheusRule")
        links = [
            rule["annotations"]["runbook_url"]
            for group in made["spec"]["groups"]
            for rule in group["rules"]
            if "alert" in rule
        ]
        assert len(links) > 10
        assert all(link.startswith(f"{start}#") for link in links)


def test_the_charts_own_store_has_a_password_and_is_there_for_sidecars_only(helm: Helm) -> None:
    secret = {"name": "store", "key": "word"}
    values = {
        "config": {"namespaces": ["shop", "bills"]},
        "valkey": {"enabled": True, "networkPolicy": {"enabled": True}},
    }
    [server] = of_kind(helm, merge(values, {"store": {"passwordSecret": secret}}), "StatefulSet")
    [container] = server["spec"]["template"]["spec"]["containers"]
    assert container["args"][-2:] == ["--requirepass", "$(ACKD_STORE_PASSWORD)"]
    [variable] = container["env"]
    assert variable == {"name": "ACKD_STORE_PASSWORD", "valueFrom": {"secretKeyRef": secret}}
    [open_to_all] = of_kind(helm, values, "StatefulSet")
    assert "--requirepass" not in str(open_to_all)

    [policy] = of_kind(helm, values, "NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == server["spec"]["selector"]["matchLabels"]
    [rule] = policy["spec"]["ingress"]
    assert [each["namespaceSelector"]["matchLabels"] for each in rule["from"]] == [
        {"kubernetes.io/metadata.name": name} for name in ("shop", "bills")
    ]
    pods = {"matchExpressions": [{"key": "ackd.dev/config", "operator": "Exists"}]}
    assert all(each["podSelector"] == pods for each in rule["from"])
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy["spec"]


def of_kind(helm: Helm, values: Json, kind: str) -> list[Json]:
    """What the chart has of one kind with these values."""
    return [each for each in helm.template(values) if each["kind"] == kind]


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
            "sidecar": {
                "networkPolicy": {
                    "enabled": True,
                    "podSelector": {"matchLabels": {"app": "orders"}},
                    "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "watch"}}}],
                    "ingress": [{"ports": [{"port": 8080, "protocol": "TCP"}]}],
                    "egress": [{"ports": [{"port": 9092, "protocol": "TCP"}]}],
                }
            },
            "config": {
                "namespaces": ["default"],
                "brokers": {"main": {"type": "kafka", "servers": "kafka.data:9092"}},
                "subscriptions": {"orders": {"topic": "orders", "group": "shop"}},
            },
            "valkey": {
                "enabled": True,
                "storageClassName": "fast",
                "networkPolicy": {"enabled": True},
            },
            "monitoring": {
                name: {"enabled": True}
                for name in ("podMonitor", "serviceMonitor", "rules", "dashboard")
            },
            "reports": {
                "mode": "cronjob",
                "tracesClaim": "traces",
                "reportsClaim": "reports",
                "secretEnv": ["s3-keys"],
                "targets": {"targets.toml": ""},
                "page": {"enabled": True},
            },
        },
    )


def sidecars_policy(helm: Helm, values: Json, end: str = "-sidecars") -> Json:
    """What the one policy with this name says."""
    things = helm.template(merge(values, {"injector": {"mode": "webhook"}}))
    [found] = [
        each["spec"]
        for each in things
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"].endswith(end)
    ]
    policy: Json = found
    return policy


def checked(api: Api, path: str, thing: Json) -> None:
    """A dry run with no field that the server does not know; raises ApiError."""
    query = "fieldManager=tests&force=true&dryRun=All&fieldValidation=Strict"
    api.call("PATCH", f"{path}?{query}", thing, "application/apply-patch+yaml")


def served(api: Api, path: str) -> bool:
    """Whether the server has the kind by now: it takes a moment behind the definition."""
    try:
        api.get(path)
    except ApiError as error:
        # A kind that is not known answers in plain text, one without such an object in JSON.
        return error.status == 404 and "page not found" not in error.message
    return True


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
