"""Webhook and policy make the same pods of the same examples, on a real API server."""

import json
import re
from typing import Any

import pytest

from tests.k8s.release import GOLDEN, Release, golden_values, merge
from tests.support.k8s.api import Api, ApiError, Json
from tests.support.k8s.helm import VERSIONS, Helm

pytestmark = pytest.mark.k8s
FILES = sorted(path for path in GOLDEN.glob("*.json") if path.name != "injector.json")
OF_SERVER = ("uid", "creationTimestamp", "managedFields", "generation")


def example(name: str) -> Json:
    found: Json = json.loads((GOLDEN / name).read_text())
    return found


def placed(pod: Json) -> Json:
    """In a namespace that is there, with a name."""
    return merge(pod, {"metadata": {"name": "golden", "namespace": "default"}})


def plain(value: Any) -> Any:
    """Without what differs each time, lists that are sets in order."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return "token" if str(value).startswith("kube-api-access-") else value
    clean = {key: plain(each) for key, each in value.items() if key not in OF_SERVER}
    for key, identity in (("volumes", "name"), ("volumeMounts", "mountPath")):
        if key in clean:
            clean[key] = sorted(clean[key], key=lambda each: str(each[identity]))
    return clean


@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_what_the_server_admits_is_the_golden_pod(release: Release, api: Api, name: str) -> None:
    """The golden pod goes through the same server: so it has its defaults, and is left as it is."""
    wanted = example(name)
    if "refused" in wanted:
        with pytest.raises(ApiError) as refused:
            api.create(placed(wanted["pod"]), dry_run=True)
        assert_same_refusal(release, wanted["refused"], refused.value.message)
        return
    admitted = api.create(placed(wanted["pod"]), dry_run=True)
    golden = api.create(placed(wanted["injected"]), dry_run=True)
    assert plain(admitted) == plain(golden)


def assert_same_refusal(release: Release, sentence: str, said: str) -> None:
    """The webhook's own words; a policy has fewer, but names the same."""
    if release.mode == "webhook":
        assert sentence in said
        return
    names = re.findall(r"ackd\.dev/[\w-]+|hostNetwork|sidecar", sentence)
    assert names
    assert all(name in said for name in names), said


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("helm", VERSIONS)
def test_the_chart_renders_the_settings_that_the_golden_pods_were_made_with(helm: str) -> None:
    values = merge(golden_values(), {"injector": {"mode": "webhook"}})
    rendered = [
        each["data"]["injector.json"]
        for each in Helm(helm).template(values)
        if each["kind"] == "ConfigMap" and "injector.json" in each.get("data", {})
    ]
    assert [json.loads(text) for text in rendered] == [example("injector.json")]
