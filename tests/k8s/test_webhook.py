"""What only a webhook has: it can be down, its certificate ends, upgrades could undo its bundle."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from tests.k8s.conftest import Namespaces
from tests.k8s.release import OPTED_IN, Release, has_sidecar, hash_of, listed, pod, workload
from tests.support.k8s.api import Api, ApiError, Json
from tests.support.k8s.helm import NAMESPACE, VERSIONS
from tests.support.k8s.injectors import NAME
from tests.support.wait import wait_until

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
OwnWebhook = Callable[..., Release]

pytestmark = [pytest.mark.k8s, pytest.mark.slow]


def bundles(api: Api) -> list[str]:
    """The authorities of each entry, as PEM."""
    found = api.get(f"{WEBHOOKS}/{NAME}")["webhooks"]
    return [base64.b64decode(each["clientConfig"].get("caBundle", "")).decode() for each in found]


def authorities(api: Api) -> set[int]:
    """Serial numbers in the first entry's bundle."""
    found = x509.load_pem_x509_certificates(bundles(api)[0].encode())
    return {each.serial_number for each in found}


def managers(api: Api) -> set[str]:
    """Who owns a caBundle."""
    fields = api.get(f"{WEBHOOKS}/{NAME}")["metadata"]["managedFields"]
    return {each["manager"] for each in fields if "f:caBundle" in json.dumps(each["fieldsV1"])}


def test_injector_down_opted_in_pods_wait_and_plain_ones_do_not(
    own_webhook: OwnWebhook, api: Api, namespace: Namespaces
) -> None:
    """`failurePolicy: Fail` may be strict because only opted-in pods are asked about."""
    release, name = own_webhook(), namespace()
    release.injectors.kill()
    with pytest.raises(ApiError) as refused:
        api.create(pod("app", name, OPTED_IN))
    assert "failed calling webhook" in refused.value.message
    api.create(pod("plain", name, {}))
    api.create(workload("Deployment", name, OPTED_IN, replicas=1))
    wait_until(
        lambda: any(
            "failed calling webhook" in each["message"]
            for each in api.items(f"/api/v1/namespaces/{name}/events")
        ),
        "the ReplicaSet could not make its pod",
        interval_s=0.2,
    )
    release.injectors.follow()
    release.wait_injecting()
    api.create(pod("later", name, OPTED_IN))
    made = wait_until(
        lambda: {
            each["metadata"]["name"]: has_sidecar(each)
            for each in api.items(f"/api/v1/namespaces/{name}/pods")
        },
        "pods",
    )
    assert made["later"]
    assert not made["plain"]


def test_the_injector_starts_in_a_namespace_that_is_opted_in(
    own_webhook: OwnWebhook, api: Api
) -> None:
    """Else nobody could put the sidecar into the pods of who puts it in: none would ever start."""
    release = own_webhook()
    labels = {"metadata": {"labels": {"ackd.dev/inject": "true"}}}
    path = f"/api/v1/namespaces/{NAMESPACE}"
    api.call("PATCH", path, labels, "application/merge-patch+json")
    try:
        release.injectors.kill()
        for each in api.items(f"{path}/pods"):
            api.delete(f"{path}/pods/{each['metadata']['name']}")
        release.injectors.follow()
        release.wait_injecting()
        assert not any(has_sidecar(each) for each in api.items(f"{path}/pods"))
    finally:
        labels["metadata"]["labels"]["ackd.dev/inject"] = "false"
        api.call("PATCH", path, labels, "application/merge-patch+json")


@pytest.mark.timeout(240)
def test_a_new_certificate_is_trusted_before_it_is_used(
    own_webhook: OwnWebhook, api: Api, namespace: Namespaces
) -> None:
    """With lives of a minute: at no moment of two renewals is an opted-in pod refused."""
    own_webhook("helm4", "--cert-life", "1m")
    name, before = namespace(), authorities(api)

    def renewed() -> bool:
        assert has_sidecar(api.create(pod("app", name, OPTED_IN), dry_run=True))
        return before.isdisjoint(authorities(api))

    wait_until(renewed, "every authority of the beginning is gone", timeout_s=180, interval_s=0.2)


def test_a_bundle_that_was_taken_away_is_put_back(own_webhook: OwnWebhook, api: Api) -> None:
    release = own_webhook()
    patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    api.call("PATCH", f"{WEBHOOKS}/{NAME}", patch, "application/json-patch+json")
    wait_until(lambda: all(bundles(api)), "both entries have a bundle", interval_s=0.2)
    release.wait_injecting()


@pytest.mark.parametrize("helm", VERSIONS)
def test_an_upgrade_leaves_injection_working(
    own_webhook: OwnWebhook, api: Api, namespace: Namespaces, helm: str
) -> None:
    """The bundle is the injectors' alone: no conflict with Helm 4's server-side apply, and Helm 3
    does not put an older one back.
    """
    release = own_webhook(helm)
    name, before, old = namespace(), release.hash, authorities(api)
    release.upgrade({"sidecar": {"cpu": "77m"}}, helm=helm)
    assert release.hash != before
    assert old <= authorities(api)
    assert managers(api) == {NAME}
    for _ in range(20):
        assert hash_of(api.create(pod("app", name, OPTED_IN), dry_run=True)) == release.hash


def test_helm_4_takes_over_what_helm_3_installed(own_webhook: OwnWebhook, api: Api) -> None:
    release = own_webhook("helm3")
    before = release.hash
    release.upgrade({"sidecar": {"cpu": "78m"}}, helm="helm4")
    assert release.hash != before
    assert managers(api) == {NAME}


def test_the_owner_of_pods_has_an_event(
    own_webhook: OwnWebhook, api: Api, namespace: Namespaces
) -> None:
    own_webhook()
    name = namespace()
    api.create(workload("Deployment", name, OPTED_IN, replicas=2))

    def told() -> list[Json]:
        events = api.items(f"/api/v1/namespaces/{name}/events")
        return [each for each in events if each["reason"] == "AckdInjected"]

    [event] = wait_until(told, "an event", interval_s=0.1)
    assert event["involvedObject"]["kind"] == "ReplicaSet"
    assert event["type"] == "Normal"


def test_pods_with_an_older_sidecar_are_listed(
    own_webhook: OwnWebhook, api: Api, namespace: Namespaces, tmp_path: Path
) -> None:
    release, name = own_webhook(), namespace()
    api.create(pod("before", name, OPTED_IN))
    assert [each["old"] for each in listed(api, name, tmp_path)] == [False]
    release.upgrade({"sidecar": {"cpu": "79m"}})
    api.create(pod("after", name, OPTED_IN))
    found = {each["pod"]: each["old"] for each in listed(api, name, tmp_path)}
    assert found == {"before": True, "after": False}
