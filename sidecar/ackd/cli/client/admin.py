"""A blocking HTTP client for one port of a running sidecar."""

from __future__ import annotations

import argparse
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from ackd.cli import exit_codes
from ackd.cli.client import endpoint
from ackd.errors import AckdError

TIMEOUT_S = 30.0
POLL_S = 0.5
_ENDED = ("done", "cancelled", "failed")

Json = dict[str, Any]


class RefusedError(AckdError):
    """The sidecar refused a request. `away`: the sidecar, its store or its broker is unreachable,
    so another try may help.
    """

    def __init__(self, detail: str, *, away: bool = False) -> None:
        super().__init__(detail)
        self.away = away


class _UnixConnection(HTTPConnection):
    """An HTTP connection to a socket file."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Admin:
    """One connection to a sidecar. A path is a tuple of unquoted parts. Raises OSError when nobody
    listens.
    """

    def __init__(self, connection: HTTPConnection, token: str, name: str = "") -> None:
        self._connection = connection
        self._name = name
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def of(cls, arguments: argparse.Namespace, port: endpoint.Port = "admin") -> Admin:
        """A client for the first endpoint of `endpoint.find`. Raises ConfigError, OSError."""
        found = endpoint.find(arguments, port)
        return cls(_connection(found), found.token, found.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def get(self, path: Sequence[str], query: Mapping[str, str] | None = None) -> Json:
        """Send a GET; the JSON answer. Raises RefusedError, OSError."""
        return self._ask("GET", path, query=query)

    def post(self, path: Sequence[str], body: Json) -> Json:
        """Send a POST with a JSON body; the JSON answer. Raises RefusedError, OSError."""
        return self._ask("POST", path, json.dumps(body).encode())

    def delete(self, path: Sequence[str]) -> Json:
        """Send a DELETE; the JSON answer. Raises RefusedError, OSError."""
        return self._ask("DELETE", path)

    def _ask(
        self,
        method: str,
        path: Sequence[str],
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Json:
        target = "/" + "/".join(quote(part, safe=":") for part in path)
        if query:
            target += f"?{urlencode(query)}"
        try:
            self._connection.request(method, target, body, self._headers)
            answer = self._connection.getresponse()
            status, raw = answer.status, answer.read()
            found: Json = json.loads(raw)
        except OSError as error:
            raise OSError(f"no sidecar answers at {self._name}: {error}") from error
        except (HTTPException, ValueError) as error:
            raise RefusedError(f"no sidecar answers there: {error}", away=True) from error
        if status >= HTTPStatus.BAD_REQUEST:
            raise RefusedError(_reason(found), away=status >= HTTPStatus.INTERNAL_SERVER_ERROR)
        return found


def follow(admin: Admin, operation: Json, line_of: Callable[[Json], str]) -> int:
    """Print an operation's progress until it ends; returns the exit code. Raises RefusedError,
    OSError.
    """
    shown = ""
    while True:
        if (line := line_of(operation)) != shown:
            shown = line
            print(line, flush=True)
        if operation["state"] in _ENDED:
            return exit_codes.DONE if operation["state"] == "done" else exit_codes.FAILED
        time.sleep(POLL_S)
        operation = admin.get(("v1", "operations", operation["id"]))


def _reason(problem: Json) -> str:
    detail = str(problem.get("detail", problem))
    faults = [f"{each['pointer']}: {each['detail']}" for each in problem.get("errors", ())]
    return "; ".join([detail, *(fault for fault in faults if fault not in detail)])


def _connection(found: endpoint.AdminEndpoint) -> HTTPConnection:
    if found.unix:
        return _UnixConnection(found.unix)
    parts = urlsplit(found.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname or endpoint.LOOPBACK, parts.port, timeout=TIMEOUT_S)
