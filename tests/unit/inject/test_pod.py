"""What is put into pods, and into which: the pure function, on pods as people write them."""

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackd.config.load import load_text
from ackd.config.schema import Settings
from ackd.errors import ConfigError
from ackd.inject.old import sidecar_of
from ackd.inject.pod import applied, decide
from ackd.inject.settings import HASH, VERSION, parse
from tests.unit.inject import cases
from tests.unit.inject.cases import CASES, GOLDEN, WANTED, pod

SETTINGS = cases.settings()
INJECTED = ("plain", "full", "own-env", "changed")
REFUSED = {
    "unknown-annotation": "ackd.dev/confg is no annotation of ackd; there are: app-env,",
    "bad-values": "ackd.dev/cpu is 'lots' and must be an amount of CPU",
    "host-network": "hostNetwork is set",
    "same-name": "a container is named ackd",
    "same-port": "a container has a port which is the sidecar's",
    "same-volume": "a volume's name starts with ackd-",
}


def injected(name: str) -> dict[str, Any]:
    return applied(CASES[name], decide(CASES[name], SETTINGS).patch)


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    assert cases.outcome(name) == json.loads((GOLDEN / f"{name}.json").read_text())


def test_each_golden_file_has_a_case() -> None:
    files = {path.stem for path in GOLDEN.glob("*.json")} - {"injector"}
    assert files == set(CASES)


@pytest.mark.parametrize("name", INJECTED)
def test_the_sidecar_comes_first_and_the_rest_stays(name: str) -> None:
    """Native: an init container that is restarted always, before all others."""
    before = deepcopy(CASES[name])
    made = injected(name)
    assert CASES[name] == before, "the pod that was given is left alone"
    spec = made["spec"]
    assert spec["initContainers"][0]["name"] == "ackd"
    assert spec["initContainers"][0]["restartPolicy"] == "Always"
    assert spec["initContainers"][1:] == before["spec"].get("initContainers", [])
    assert [c["name"] for c in spec["containers"]] == [
        c["name"] for c in before["spec"]["containers"]
    ]
    assert made["metadata"]["labels"] == before["metadata"].get("labels", {}) | {
        "ackd.dev/config": before["metadata"]["annotations"].get("ackd.dev/config", "ackd-config")
    }
    config = made["metadata"]["labels"]["ackd.dev/config"]
    assert made["metadata"]["annotations"][HASH] == SETTINGS.hash_with(config)
    assert made["metadata"]["annotations"][VERSION] == SETTINGS.version
    assert "<<" not in json.dumps(made), "an open place was not filled in"


@pytest.mark.parametrize("name", INJECTED)
def test_once_more_changes_nothing(name: str) -> None:
    again = decide(injected(name), SETTINGS)
    assert (again.reason, again.refusal, again.patch) == ("already-there", "", [])


@pytest.mark.parametrize("name", INJECTED)
def test_it_meets_pod_security_restricted(name: str) -> None:
    """The fields that the standard's `restricted` profile asks of a container."""
    sidecar = injected(name)["spec"]["initContainers"][0]
    security = sidecar["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] != 0
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"]["type"] == "RuntimeDefault"
    assert security["readOnlyRootFilesystem"] is True
    kinds = {key for v in injected(name)["spec"]["volumes"] for key in v if key != "name"}
    assert kinds <= {"configMap", "emptyDir", "secret", "projected"}


def test_no_service_account_token_in_the_sidecar() -> None:
    made = injected("plain")["spec"]
    mounts = {m["mountPath"]: m["name"] for m in made["initContainers"][0]["volumeMounts"]}
    hidden = mounts["/var/run/secrets/kubernetes.io/serviceaccount"]
    assert next(v for v in made["volumes"] if v["name"] == hidden)["emptyDir"] is not None


def test_hooks_and_probes() -> None:
    """PreStop hands out nothing new; the application starts when readiness says so, not before."""
    sidecar = injected("plain")["spec"]["initContainers"][0]
    assert sidecar["lifecycle"]["preStop"]["exec"]["command"][:2] == ["ackd", "drain"]
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"
    env = {each["name"]: each.get("value") for each in sidecar["env"]}
    assert env["ACKD_DEFAULT__SERVER__STOP"] == "release"
    assert env["ACKD_SERVER__LISTEN"].startswith("127.0.0.1:")


def test_the_application_is_told_unless_it_has_said_itself() -> None:
    def env(name: str, index: int = 0) -> dict[str, str]:
        container = injected(name)["spec"]["containers"][index]
        return {each["name"]: each["value"] for each in container.get("env", [])}

    assert env("plain")["ACKD_URL"] == "http://127.0.0.1:7080"
    assert env("full")["PORT"] == "8080"
    assert env("full", 1)["ACKD_TOKEN_FILE"] == "/etc/ackd/token/token"
    assert env("own-env")["ACKD_URL"] == "http://localhost:7080"
    assert env("changed") == {}


def test_annotations_change_the_sidecar() -> None:
    made = injected("changed")["spec"]
    sidecar = made["initContainers"][0]
    assert sidecar["resources"]["limits"] == {"memory": "256Mi"}
    assert sidecar["resources"]["requests"] == {"cpu": "200m", "memory": "256Mi"}
    assert sidecar["image"].startswith("registry.example/ackd@sha256:")
    volume = next(v for v in made["volumes"] if v["name"] == "ackd-config")
    assert volume["configMap"]["name"] == "orders"


@pytest.mark.parametrize(("name", "sentence"), REFUSED.items())
def test_refused_with_its_name(name: str, sentence: str) -> None:
    decision = decide(CASES[name], SETTINGS)
    assert sentence in decision.refusal
    assert not decision.patch


def test_all_mistakes_are_told_at_once() -> None:
    refusal = decide(CASES["bad-values"], SETTINGS).refusal
    for name in ("app-health", "cpu", "inject"):
        assert f"ackd.dev/{name} is" in refusal


def test_who_is_meant() -> None:
    """The pod's word counts before the namespace's."""
    for by_namespace, annotations, meant in (
        (False, None, False),
        (True, None, True),
        (True, {"inject": "false"}, False),
        (False, WANTED, True),
        (True, {"confg": "x"}, True),
    ):
        decision = decide(pod(annotations), SETTINGS, by_namespace=by_namespace)
        assert (decision.reason != "not-wanted") is meant, (by_namespace, annotations)


def test_a_pod_without_annotations_in_a_labelled_namespace() -> None:
    bare = pod()
    made = applied(bare, decide(bare, SETTINGS, by_namespace=True).patch)
    assert made["metadata"]["annotations"] == {
        HASH: SETTINGS.hash_with("ackd-config"),
        VERSION: SETTINGS.version,
    }


def test_what_a_team_wrote_counts_before_the_injectors_environment() -> None:
    """Only what the pod has to be like is said in its environment for good; the rest are defaults,
    and a variable for which the pod has no annotation is not there at all.
    """
    text = """
        [server]
        listen = ":9999"
        stop = "wait"
        drain_ms = "7s"
        [app]
        health_url = "http://127.0.0.1:8080/healthz"
        [telemetry]
        log_level = "debug"
    """

    def read(pod_name: str, text: str) -> Settings:
        """As the sidecar of that pod, whose files are not here."""
        env = injected(pod_name)["spec"]["initContainers"][0]["env"]
        environ = {each["name"]: each["value"] for each in env if "value" in each}
        environ |= {"ACKD_PEERS__ADVERTISE": "10.0.0.7", "ACKD_IDENTITY": "shop"}
        return load_text(text, None, environ, check_files=False)

    of_team, silent = read("plain", text), read("plain", "")
    assert (of_team.server.stop, of_team.server.drain_ms) == ("wait", 7_000)
    assert (silent.server.stop, silent.server.drain_ms) == ("release", 1_500)
    assert of_team.app.health_url == "http://127.0.0.1:8080/healthz"
    assert (silent.app.health_url, of_team.telemetry.log_level) == ("", "debug")
    # The pod's own annotation is nearer, and where the sidecar listens is no matter of the team.
    assert read("changed", text.replace("8080", "1")).app.health_url.endswith(":8080/healthz")
    assert of_team.server.listen == silent.server.listen == "127.0.0.1:7080"


def test_pull_secrets_reach_the_pod_once_each() -> None:
    found = {
        name: [each["name"] for each in injected(name)["spec"]["imagePullSecrets"]]
        for name in ("plain", "own-pull-secrets", "other-pull-secrets")
    }
    assert found == {
        "plain": ["registry"],
        "own-pull-secrets": ["own", "registry"],
        "other-pull-secrets": ["own", "registry"],
    }


def test_a_changed_file_of_the_chart_makes_its_pods_old() -> None:
    """And only those that have it: a team's own ConfigMap is not the chart's."""
    changed = msgspec.structs.replace(SETTINGS, configs={"ackd-config": "another"})
    for name, is_old in (("plain", True), ("changed", False)):
        made = injected(name)
        made["metadata"]["namespace"] = "shop"
        before, after = (sidecar_of(made, each) for each in (SETTINGS, changed))
        assert before
        assert after
        assert (before.old, after.old) == (False, is_old)


@given(
    st.dictionaries(
        st.sampled_from(sorted({*SETTINGS.annotations, "confg", "Inject", "config-hash"})),
        st.text(max_size=20) | st.sampled_from(["true", "false", "orders", "100m", "1Gi"]),
    ),
    st.booleans(),
)
def test_any_annotations(annotations: dict[str, str], by_namespace: bool) -> None:  # noqa: FBT001 - drawn
    """Never an error; a patch or a refusal or neither, and what is patched is complete."""
    made = pod(annotations)
    decision = decide(made, SETTINGS, by_namespace=by_namespace)
    assert not (decision.refusal and decision.patch)
    assert decision.refusal.isprintable()
    if decision.patch:
        after = applied(made, decision.patch)
        again = decide(after, SETTINGS, by_namespace=by_namespace)
        assert again.reason == "already-there"
        assert set(annotations) - {"config-hash"} <= set(SETTINGS.annotations)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"container": {"name": "x", "restartPolicy": "Always"}}, "container.name"),
        ({"container": {"name": "ackd"}}, "restartPolicy"),
        ({"app_env": [{"name": "A", "value": "<<nothing>>"}]}, "<<nothing>>"),
        ({"volumes": [{"name": "x"}]}, "must start with ackd-"),
        ({"annotations": {}}, "must be among them"),
        ({"more": 1}, "more"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, Any], words: str) -> None:
    tree = msgspec.to_builtins(SETTINGS) | change
    with pytest.raises(ConfigError, match=words):
        parse(msgspec.json.encode(tree), "injector.json")
