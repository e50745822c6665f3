"""A small client of the Kubernetes API: finds its address and our credentials, sends requests.

Inside a pod both come from the mount of the service account. The client reads the token for every
request again, because the kubelet replaces it every hour. Outside of a pod they come from a
kubeconfig file, or from an address and files.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from ackd.errors import AckdError, ConfigError
from ackd.hidden import HIDDEN
from ackd.inject.settings import Json
from ackd.unreadable import UNREADABLE

MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 10.0
PAGE = 500
JSON_PATCH = "application/json-patch+json"


class ApiError(AckdError):
    """The Kubernetes API refused with this HTTP `code`, or can't be reached (`code` 0)."""

    def __init__(self, detail: str, code: int = 0) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(frozen=True, slots=True)
class Access:
    """The API's address and our credentials; each request reads `token_file` again."""

    url: str
    tls: ssl.SSLContext | bool
    token_file: Path | None = None
    token: str = ""

    def headers(self) -> dict[str, str]:
        """Headers with the bearer token; a token file is read each time. Raises ConfigError."""
        token: str = self.token
        if self.token_file is not None:
            try:
                token = self.token_file.read_text().strip()
            except OSError as error:
                raise ConfigError(f"{self.token_file}: {error.strerror or error}") from error
        if not token:
            return {}
        HIDDEN.add(token.encode())
        return {"Authorization": f"Bearer {token}"}


def in_pod(environ: Mapping[str, str], mount: Path = MOUNT) -> Access | None:
    """Access as the pod's service account; None outside of a pod."""
    host = environ.get("KUBERNETES_SERVICE_HOST")
    token = mount / "token"
    if not host or not token.exists():
        return None
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    name = f"[{host}]" if ":" in host else host
    return Access(f"https://{name}:{port}", trusting(mount / "ca.crt"), token)


def by_files(url: str, token_file: Path | None, ca_file: Path | None, *, insecure: bool) -> Access:
    """Access by an address and files that the user named. Raises ConfigError."""
    tls: ssl.SSLContext | bool = not insecure
    if ca_file is not None and not insecure:
        tls = trusting(ca_file)
    return Access(url.rstrip("/"), tls, token_file)


def trusting(ca_file: Path) -> ssl.SSLContext:
    """A TLS context that trusts the authorities in this file. Raises ConfigError."""
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except OSError as error:
        raise ConfigError(f"{ca_file}: no certificates to trust: {error}") from error


def by_kubeconfig(file: Path, context: str = "") -> Access:
    """Access by a context of a kubeconfig file, which may have a token or a client certificate. It
    runs no credential helpers. Raises ConfigError.
    """
    try:
        import yaml  # noqa: PLC0415  an extra
    except ImportError as error:
        raise ConfigError("a kubeconfig needs PyYAML: pip install 'ackd[inject]'") from error
    try:
        tree = yaml.safe_load(file.read_text())
        name = context or tree["current-context"]
        chosen = _named(tree["contexts"], name)["context"]
        cluster = _named(tree["clusters"], chosen["cluster"])["cluster"]
        user = _named(tree["users"], chosen["user"])["user"]
        return _access(cluster, user, file.parent)
    except OSError as error:  # Errors of TLS are OSErrors too, without an errno.
        raise ConfigError(f"{file}: can't be used as a kubeconfig: {error}") from error
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{file}: can't be used as a kubeconfig: {error!r}") from error


def _named(items: list[Json], name: str) -> Json:
    found: Json = {each["name"]: each for each in items}[name]
    return found


def _access(cluster: Json, user: Json, folder: Path) -> Access:
    if "exec" in user or "auth-provider" in user:
        raise ConfigError(
            "this kubeconfig asks a helper program: use `kubectl proxy` and --api-url"
        )
    tls = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    elif "certificate-authority-data" in cluster:
        tls = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"], validate=True).decode()
        )
    elif "certificate-authority" in cluster:
        tls = trusting(folder / cluster["certificate-authority"])
    if "client-certificate" in user:
        tls.load_cert_chain(folder / user["client-certificate"], folder / user["client-key"])
    elif "client-certificate-data" in user:
        _load_data(tls, user["client-certificate-data"], user["client-key-data"])
    token_file = folder / user["tokenFile"] if "tokenFile" in user else None
    return Access(str(cluster["server"]).rstrip("/"), tls, token_file, str(user.get("token", "")))


def _load_data(tls: ssl.SSLContext, cert: str, key: str) -> None:
    """Load a certificate and key from texts, through a file that this deletes at once: Python lets
    OpenSSL read files only.
    """
    with TemporaryDirectory(prefix="ackd-kubeconfig-") as folder:
        both = Path(folder) / "both.pem"
        both.touch(mode=0o600)
        both.write_bytes(
            base64.b64decode(key, validate=True) + b"\n" + base64.b64decode(cert, validate=True)
        )
        tls.load_cert_chain(both)


def find(
    *,
    url: str | None = None,
    token_file: Path | None = None,
    ca_file: Path | None = None,
    insecure: bool = False,
    kubeconfig: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Access:
    """Access by what the user named, else as the pod's account, else by the kubeconfig. Raises
    ConfigError.
    """
    if url is not None:
        return by_files(url, token_file, ca_file, insecure=insecure)
    if kubeconfig is None and (access := in_pod(environ)) is not None:
        return access
    folder = Path.home()  # tidy: word -- the user's
    named = kubeconfig or Path(environ.get("KUBECONFIG") or folder / ".kube" / "config")
    return by_kubeconfig(named)


class Api:
    """An HTTP session with the Kubernetes API, as an async context manager."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = TCPConnector(ssl=self._access.tls, limit=10)
        self._session = ClientSession(
            connector=connector, timeout=ClientTimeout(total=TIMEOUT_S), trust_env=False
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, **query: str) -> Json:
        """Send a GET; the JSON answer. Raises ApiError, ConfigError."""
        return await self._ask("GET", path, query=query)

    async def post(self, path: str, body: Json) -> Json:
        """Send a POST with a JSON body; the JSON answer. Raises ApiError, ConfigError."""
        return await self._ask("POST", path, msgspec.json.encode(body), "application/json")

    async def patch(self, path: str, operations: list[Json]) -> Json:
        """Send a JSON patch (RFC 6902). Raises ApiError, ConfigError."""
        query = {"fieldManager": "ackd-injector"}
        return await self._ask("PATCH", path, msgspec.json.encode(operations), JSON_PATCH, query)

    async def all(self, path: str, **query: str) -> AsyncIterator[Json]:
        """Every object of a list, a page at a time. Raises ApiError, ConfigError."""
        more = ""
        while True:
            page = await self.get(
                path, limit=str(PAGE), **({"continue": more} if more else {}), **query
            )
            for each in page["items"]:
                yield each
            more = page["metadata"].get("continue", "")
            if not more:
                return

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        if self._session is None:
            raise ApiError("the session is not open")
        headers = await asyncio.to_thread(self._access.headers)
        if kind:
            headers["Content-Type"] = kind
        try:
            async with self._session.request(
                method, f"{self._access.url}{path}", data=body, headers=headers, params=query
            ) as answer:
                raw = await answer.read()
                found: Any = msgspec.json.decode(raw) if raw else {}
        except (ClientError, OSError, TimeoutError, *UNREADABLE) as error:
            raise ApiError(f"the Kubernetes API can't be reached: {error!r}") from error
        if not answer.ok:
            why = str(
                found.get("message", answer.reason) if isinstance(found, dict) else answer.reason
            )
            raise ApiError(f"{method} {path}: {answer.status}: {why}", answer.status)
        return found if isinstance(found, dict) else {}
