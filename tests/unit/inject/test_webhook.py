"""`ackd inject serve` as a process: real TLS, real AdmissionReviews, and the answers to bad ones.

Here the certificate comes from files; that the caBundle of a real API server is kept is shown in
tests/k8s.
"""

import base64
import json
import ssl
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from ackd.inject import certs
from ackd.inject.pod import applied
from ackd_torture.ports import free_port, give_back
from tests.support.proc import Process
from tests.support.wait import wait_until
from tests.unit.cli.test_command import plain_environ
from tests.unit.inject.cases import CASES, SETTINGS, outcome

HOST = "ackd-injector.ackd-system.svc"


@dataclass
class Webhook:
    """A running one. `trust` is what an API server would verify it with."""

    process: Process
    port: int
    health_port: int
    trust: ssl.SSLContext
    folder: Path

    def post(self, body: bytes, path: str = "/mutate") -> tuple[int, bytes]:
        """As an API server posts: TLS with the Service's name."""
        with closing(self.connect()) as connection:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def connect(self) -> HTTPSConnection:
        return _Named(self.port, self.trust)

    def health(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.health_port}{path}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())


class _Named(HTTPSConnection):
    """Connects to this machine and expects a certificate for the Service."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        super().__init__("127.0.0.1", port, timeout=30)
        self._trust = trust

    def connect(self) -> None:
        super(HTTPSConnection, self).connect()
        self.sock = self._trust.wrap_socket(self.sock, server_hostname=HOST)


def write(folder: Path, identity: certs.Identity) -> None:
    (folder / "tls.crt").write_text(identity.cert)
    (folder / "tls.key").write_text(identity.key)


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    folder = tmp_path_factory.mktemp("webhook")
    identity = certs.make([HOST], timedelta(hours=1))
    write(folder, identity)
    port, health_port = free_port(), free_port()
    argv: list[str | Path] = [
        *(sys.executable, "-m", "ackd", "inject", "serve", "--config", SETTINGS),
        *("--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key"),
        *("--listen", f"127.0.0.1:{port}", "--health-listen", f"127.0.0.1:{health_port}"),
        *(
            "--api-url",
            "http://127.0.0.1:1",
            "--no-events",
            "--look-for-old",
            "0s",
            "--drain",
            "0s",
        ),
    ]
    process = Process(argv, log_path=folder / "log", env=plain_environ())
    trust = ssl.create_default_context(cadata=identity.ca)
    running = Webhook(process, port, health_port, trust, folder)
    process.start()
    try:
        wait_until(
            lambda: running.health("/readyz") == "ok\n",
            "the webhook is ready",
            ignoring=(OSError,),
        )
        yield running
        assert process.running, process.log()
    finally:
        process.stop()
        give_back(port, health_port)


def review(pod: dict[str, Any], **more: object) -> bytes:
    """As an API server of 1.36 sends it."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        **more,
    }
    return json.dumps(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    ).encode()


def answered(webhook: Webhook, body: bytes, path: str = "/mutate") -> dict[str, Any]:
    status, raw = webhook.post(body, path)
    assert status == 200, raw
    found: dict[str, Any] = json.loads(raw)
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = found["response"]
    assert response["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    return response


@pytest.mark.parametrize("name", CASES)
def test_each_case_over_tls(webhook: Webhook, name: str) -> None:
    response = answered(webhook, review(CASES[name]))
    wanted = outcome(name)
    if "refused" in wanted:
        assert response["allowed"] is False
        assert response["status"]["message"] == wanted["refused"]
        assert "patch" not in response
        return
    assert response["allowed"] is True
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    assert applied(CASES[name], patch) == wanted["injected"]
    assert ("patchType" in response) is bool(patch)


def test_by_namespace(webhook: Webhook) -> None:
    bare = CASES["says-nothing"]
    assert "patch" not in answered(webhook, review(bare))
    assert "patch" in answered(webhook, review(bare), "/mutate/namespace")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        review({}).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
        review({"metadata": {"annotations": {"ackd.dev/inject": "true"}}, "spec": [1]}),
        review({"metadata": {"annotations": {"ackd.dev/inject": 7}}, "spec": {"containers": []}}),
        review(
            {"metadata": {"annotations": {"ackd.dev/inject": "true"}}, "spec": {"containers": 3}}
        ),
        b"\xff\xfe" * 100,
    ],
)
def test_what_is_no_review_is_answered_400(webhook: Webhook, body: bytes) -> None:
    """The API server takes that for a failure of the webhook, and refuses the pod."""
    assert webhook.post(body)[0] == 400
    assert webhook.process.running


def test_other_paths_and_methods(webhook: Webhook) -> None:
    assert webhook.post(b"", "/nothing")[0] == 404
    with closing(webhook.connect()) as connection:
        connection.request("GET", "/mutate")
        assert connection.getresponse().status == 405


def test_metrics_count_by_reason(webhook: Webhook) -> None:
    def count(reason: str) -> float:
        lines = webhook.health("/metrics").splitlines()
        start = f'ackd_inject_pods_total{{reason="{reason}"}} '
        return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))

    before = count("injected"), count("bad-annotation")
    answered(webhook, review(CASES["plain"]))
    answered(webhook, review(CASES["unknown-annotation"]))
    assert (count("injected"), count("bad-annotation")) == (before[0] + 1, before[1] + 1)


def test_a_new_certificate_is_taken_while_it_runs(webhook: Webhook) -> None:
    """cert-manager writes the files anew; nobody restarts the pod."""
    identity = certs.make([HOST], timedelta(hours=1))
    fresh = ssl.create_default_context(cadata=identity.ca)
    with pytest.raises(ssl.SSLError):
        _with(webhook, fresh).post(review(CASES["plain"]))
    write(webhook.folder, identity)
    after = _with(webhook, fresh)
    wait_until(
        lambda: after.post(review(CASES["plain"]))[0] == 200,
        "the new certificate is served",
        ignoring=(ssl.SSLError,),
    )
    webhook.trust = fresh


def _with(webhook: Webhook, trust: ssl.SSLContext) -> Webhook:
    return Webhook(webhook.process, webhook.port, webhook.health_port, trust, webhook.folder)
