"""A small client of the API server: objects in and out as JSON, errors with the server's words."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.wait import wait_until

Json = dict[str, Any]
_CALL_S_MAX = 60.0
_APPLY = "application/apply-patch+yaml"
CLUSTER_WIDE = frozenset(
    {
        "APIService",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PriorityClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    }
)


class ApiError(Exception):
    """What the server refused: its HTTP status and its sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Api:
    """Calls with one token."""

    url: str
    token: str
    ca_file: Path

    def call(self, method: str, path: str, body: object = None, kind: str = "") -> Any:
        """The decoded answer; raises ApiError, or OSError when there is no server."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = kind or "application/json"
        request = urllib.request.Request(  # noqa: S310 -- always our own https address
            f"{self.url}{path}", data=data, headers=headers, method=method
        )
        context = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=_CALL_S_MAX, context=context) as answer:  # noqa: S310 -- as above
                text = answer.read()
                as_json = answer.headers.get_content_type() == "application/json"
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, _message(error.read())) from error
        return json.loads(text) if as_json else text.decode()

    def get(self, path: str) -> Json:
        """One object, or a list's object."""
        answer: Json = self.call("GET", path)
        return answer

    def items(self, path: str) -> list[Json]:
        """What is in a list."""
        found: list[Json] = self.get(path)["items"]
        return found

    def create(self, thing: Json, *, dry_run: bool = False) -> Json:
        """Create it as it is; the object as the server has it after admission."""
        query = "?dryRun=All" if dry_run else ""
        answer: Json = self.call("POST", f"{collection(thing)}{query}", thing)
        return answer

    def apply(self, thing: Json, *, dry_run: bool = False, manager: str = "tests") -> Json:
        """Server-side apply."""
        query = f"?fieldManager={manager}&force=true{'&dryRun=All' if dry_run else ''}"
        path = f"{collection(thing)}/{thing['metadata']['name']}{query}"
        answer: Json = self.call("PATCH", path, thing, _APPLY)
        return answer

    def delete(self, path: str) -> None:
        """Delete it; what is gone already is fine."""
        try:
            self.call("DELETE", path, {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise

    def namespace(self, name: str, labels: Mapping[str, str]) -> str:
        """Make a namespace and wait until pods can be made in it; its name."""
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": dict(labels)},
            }
        )
        wait_until(
            lambda: self.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
            f"the default service account of {name}",
            ignoring=(ApiError,),
        )
        return name

    def as_account(self, namespace: str, name: str) -> "Api":
        """The same server with a fresh token of a service account."""
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return Api(self.url, self.call("POST", path, asked)["status"]["token"], self.ca_file)


def collection(thing: Json) -> str:
    """The path of the list that an object is in."""
    version, kind = thing["apiVersion"], thing["kind"]
    start = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if kind not in CLUSTER_WIDE:
        start += f"/namespaces/{thing['metadata'].get('namespace', 'default')}"
    lower = kind.lower()
    plural = f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"
    return f"{start}/{plural}"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
