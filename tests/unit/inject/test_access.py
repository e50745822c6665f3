"""Where the Kubernetes API is and who we are: a pod's mount, a kubeconfig, files."""

import base64
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from ackd.errors import ConfigError
from ackd.inject import api, certs

IDENTITY = certs.make(["kubernetes"], timedelta(hours=1))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    file = folder / "config"
    tree = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(tree))
    return file


def test_in_a_pod(tmp_path: Path) -> None:
    """The token is read anew for each request: the kubelet replaces it."""
    (tmp_path / "ca.crt").write_text(IDENTITY.ca)
    (tmp_path / "token").write_text("first\n")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = api.in_pod(environ, tmp_path)
    assert access is not None
    assert access.url == "https://[fd00::1]:443"
    assert access.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert access.headers() == {"Authorization": "Bearer second"}
    assert api.in_pod({}, tmp_path) is None
    assert api.in_pod(environ, tmp_path / "nothing") is None


def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    file = kubeconfig(
        tmp_path, {"certificate-authority-data": encoded(IDENTITY.ca)}, {"token": "secret-token"}
    )
    access = api.by_kubeconfig(file)
    assert access.url == "https://api:6443"
    assert access.headers() == {"Authorization": "Bearer secret-token"}
    assert isinstance(access.tls, ssl.SSLContext)
    assert access.tls.verify_mode is ssl.CERT_REQUIRED


def test_a_kubeconfig_with_a_client_certificate(tmp_path: Path) -> None:
    """As kubeadm and kind write it: in the file itself."""
    user = {
        "client-certificate-data": encoded(IDENTITY.cert),
        "client-key-data": encoded(IDENTITY.key),
    }
    access = api.by_kubeconfig(kubeconfig(tmp_path, {"insecure-skip-tls-verify": True}, user))
    assert access.headers() == {}
    assert isinstance(access.tls, ssl.SSLContext)
    assert access.tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({}, {"exec": {"command": "aws"}}, "helper program"),
        ({"certificate-authority-data": "%%%"}, {}, "can't be used"),
        ({"certificate-authority": "nothing.pem"}, {}, "nothing.pem"),
        ({}, {"client-certificate-data": encoded("x"), "client-key-data": "eA=="}, "can't be used"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        api.by_kubeconfig(kubeconfig(tmp_path, cluster, user))


@pytest.mark.parametrize("text", ["", "[]", "current-context: x", "a: b: c", "\x00"])
def test_what_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ConfigError):
        api.by_kubeconfig(file)
    with pytest.raises(ConfigError):
        api.by_kubeconfig(tmp_path / "nothing")


async def test_an_api_that_is_not_there() -> None:
    async with api.Api(api.by_files("http://127.0.0.1:1", None, None, insecure=False)) as client:
        with pytest.raises(api.ApiError, match="can't be reached") as error:
            await client.get("/api")
    assert error.value.code == 0
