"""The broker's admin interface (REST v2): blocking, for threads.

Most questions need only the right to consume. Writing a topic's properties and making topics need
an admin of the tenant; both can be done without.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ackd.errors import BrokerError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
ANSWER_BYTES_MAX = 32 * 1024 * 1024


class RestError(BrokerError):
    """The broker refused; `status` is HTTP's, 0 = no answer."""

    def __init__(self, detail: str, status: int) -> None:
        super().__init__(detail)
        self.status_code = status


@dataclass(frozen=True, slots=True)
class Admin:
    """Address and credentials. `token` is called for every request, because a token may be
    renewed.
    """

    url: str
    tls: ssl.SSLContext | None
    token: Callable[[], str] | None
    timeout_s: float

    def address(self, path: str) -> str:
        """The full address of a path."""
        return f"{self.url.rstrip('/')}/admin/v2/{path}"

    def authorization(self) -> dict[str, str]:
        """The headers that identify the caller."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token()}"}


class Rest:
    """Opens a connection for each request."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def ask(self, method: str, path: str, body: Json = None) -> Json:
        """Send one request to the admin interface; the JSON answer. Raises RestError."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= self._admin.authorization()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 -- the scheme is checked with the options
            self._admin.address(path), data, headers, method=method
        )
        try:
            with urllib.request.urlopen(  # noqa: S310 -- as above
                request, timeout=self._admin.timeout_s, context=self._admin.tls
            ) as answer:
                text = answer.read(ANSWER_BYTES_MAX).decode()
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read(2000).decode(errors="replace")
            raise RestError(f"{method} {path}: {error.code} {reason[:300]}", error.code) from None
        except OSError as error:
            raise RestError(f"{method} {path}: {error}", 0) from None
        try:
            found: Json = json.loads(text) if text else None
        except ValueError:
            raise RestError(f"{method} {path}: no JSON: {text[:100]!r}", 0) from None
        return found

    def table(self, path: str) -> Mapping[str, Json]:
        """GET a JSON object. Raises RestError."""
        found = self.ask("GET", path)
        if not isinstance(found, dict):
            raise RestError(f"GET {path}: an object was expected", 0)
        return found


def table(value: Json) -> Mapping[str, Json]:
    """The value as a JSON object; empty when it is none."""
    return value if isinstance(value, dict) else {}


def number(value: Json) -> int:
    """The value as a whole number; -1 when it is none."""
    return value if isinstance(value, int) else -1
