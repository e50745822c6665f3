"""That no pod starts bare where a policy injects, and what a changed ackd.toml does in both modes.

These change the release of the run, and put it back.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s.conftest import Namespaces
from tests.k8s.release import OPTED_IN, Release, has_sidecar, listed, pod
from tests.support.k8s.api import Api, ApiError
from tests.support.k8s.injectors import NAME
from tests.support.wait import wait_until

pytestmark = pytest.mark.k8s
BINDING = f"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/{NAME}"
OTHER = {**OPTED_IN, "ackd.dev/config": "own"}


@pytest.fixture
def changed_release(release: Release) -> Iterator[Release]:
    """The chart, to break."""
    yield release
    release.upgrade()


def test_a_pod_that_asks_for_a_sidecar_never_starts_without_one(
    changed_release: Release, api: Api, namespace: Namespaces
) -> None:
    """As in the first moment after an installation, when the policy that injects is not in force:
    the pod is refused in words, and others are made as ever.
    """
    if changed_release.mode != "policy":
        pytest.skip("the API server refuses such pods while the webhook is away: test_webhook.py")
    name = namespace()
    api.delete(BINDING)

    def refusal() -> str:
        try:
            made = api.create(pod("app", name, OPTED_IN), dry_run=True)
        except ApiError as error:
            return error.message
        assert has_sidecar(made), "a pod without the sidecar that it asks for"
        return ""

    assert "asks for a sidecar and has none" in wait_until(refusal, "a refusal", interval_s=0.1)
    assert not has_sidecar(api.create(pod("plain", name, {}), dry_run=True))
    assert not has_sidecar(api.create(pod("out", name, {"ackd.dev/inject": "false"}), dry_run=True))


def test_pods_with_an_older_configuration_are_listed(
    changed_release: Release, api: Api, namespace: Namespaces, tmp_path: Path
) -> None:
    """Those that have the chart's ackd.toml; what a team brings itself is not the chart's."""
    name = namespace()
    api.create(pod("before", name, OPTED_IN))
    api.create(pod("other", name, OTHER))
    assert not any(each["old"] for each in listed(api, name, tmp_path))
    orders = {"topics": ["orders"], "lease_ms": "7s"}
    changed_release.upgrade({"config": {"subscriptions": {"orders": orders}}})
    api.create(pod("after", name, OPTED_IN))
    found = {each["pod"]: each["old"] for each in listed(api, name, tmp_path)}
    assert found == {"before": True, "other": False, "after": False}
