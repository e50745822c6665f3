"""The broker's admin interface (REST v2): blocking, for threads.

Most questions need only the right to consume. Writing a topic's properties and making topics need
an admin of the tenant; both can be done without.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ackd.errors import BrokerError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
ANSWER_BYTES_MAX = 32 * 1024 * 1024
KEPT_MAX = 4
"""Connections that wait for the next question, at most."""
KEPT_S = 5.0
"""Constant, well below any server's own bound: a member asks more often than that."""
REDIRECTS = (301, 302, 303, 307, 308)
SAME_METHOD = (307, 308)
"""A broker answers so when another one owns the topic: the same question has to be asked there."""
MOVES_MAX = 5


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
    """Keeps a few connections for questions: a member asks several times a second. What changes
    something gets a connection of its own, as nobody could tell whether it was done if a kept one
    broke.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        parts = urllib.parse.urlsplit(admin.url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        host = self._host or ""
        # The environment may name a proxy, which urllib knows how to ask.
        proxied = parts.scheme in urllib.request.getproxies()
        self._direct = bool(host) and (not proxied or bool(urllib.request.proxy_bypass(host)))
        self._lock = threading.Lock()
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []
        self._closed = False

    def ask(self, method: str, path: str, body: Json = None) -> Json:
        """Send one request to the admin interface; the JSON answer. Raises RestError."""
        url = self._admin.address(path)
        if method == "GET" and self._direct:
            status, text = self._get(path, url)
            if status in REDIRECTS:
                text = self._ask_anew(method, path, text, None)
        else:
            text = self._ask_anew(method, path, url, body)
        try:
            found: Json = json.loads(text) if text else None
        except ValueError:
            raise RestError(f"{method} {path}: no JSON: {text[:100]!r}", 0) from None
        return found

    def close(self) -> None:
        """End the connections that are kept, and keep none of questions that are still asked."""
        with self._lock:
            kept, self._kept, self._closed = self._kept, [], True
        for _, each in kept:
            each.close()

    def _ask_anew(self, method: str, path: str, url: str, body: Json) -> str:
        """Over a connection for this request only, where redirects and proxies lead."""
        for _ in range(MOVES_MAX):
            text, moved = self._ask_once(method, path, url, body)
            if not moved:
                return text
            url = moved
        raise RestError(f"{method} {path}: redirected more than {MOVES_MAX} times", 0)

    def _ask_once(self, method: str, path: str, url: str, body: Json) -> tuple[str, str]:
        """The answer, or where the broker is that has to be asked. urllib itself leads no change
        there.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 -- the scheme is checked with the options
            url, data, self._headers(), method=method
        )
        try:
            with urllib.request.urlopen(  # noqa: S310 -- as above
                request, timeout=self._admin.timeout_s, context=self._admin.tls
            ) as answer:
                text: str = answer.read(ANSWER_BYTES_MAX).decode()
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read(2000).decode(errors="replace")
            moved = urllib.parse.urljoin(url, error.headers.get("Location", ""))
            if error.code in SAME_METHOD and moved.startswith(("http://", "https://")):
                return "", moved
            raise _refused(method, path, error.code, reason) from None
        except OSError as error:
            raise RestError(f"{method} {path}: {error}", 0) from None
        return text, ""

    def _get(self, path: str, url: str) -> tuple[int, str]:
        """Status and answer; of a redirect the address where to ask. Raises RestError."""
        headers, target = self._headers(), url[len(_origin(url)) :]
        connection = self._take()
        if connection is not None:
            try:
                return self._exchange(connection, path, target, headers)
            except TimeoutError as error:
                raise RestError(f"GET {path}: {error}", 0) from None
            except (OSError, http.client.HTTPException):
                pass  # the broker has ended it meanwhile
        try:
            return self._exchange(self._connection(), path, target, headers)
        except (OSError, http.client.HTTPException) as error:
            raise RestError(f"GET {path}: {str(error) or type(error).__name__}", 0) from None

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        target: str,
        headers: Mapping[str, str],
    ) -> tuple[int, str]:
        kept = False
        try:
            connection.request("GET", target, headers=dict(headers))
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace")
            kept = answer.isclosed() and not answer.will_close
        finally:
            if not kept:
                connection.close()
        if kept:
            self._keep(connection)
        if answer.status in REDIRECTS:
            return answer.status, urllib.parse.urljoin(
                self._admin.url, answer.headers.get("Location", "")
            )
        if not 200 <= answer.status < 300:  # noqa: PLR2004 -- HTTP
            raise _refused("GET", path, answer.status, text)
        return answer.status, text

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        return headers | self._admin.authorization()

    def _connection(self) -> http.client.HTTPConnection:
        host, timeout_s = self._host or "", self._admin.timeout_s
        if self._secure:
            return http.client.HTTPSConnection(
                host, self._port, timeout=timeout_s, context=self._admin.tls
            )
        return http.client.HTTPConnection(host, self._port, timeout=timeout_s)

    def _take(self) -> http.client.HTTPConnection | None:
        oldest_s = time.monotonic() - KEPT_S
        with self._lock:
            late = [each for at, each in self._kept if at < oldest_s]
            self._kept = [each for each in self._kept if each[0] >= oldest_s]
            found = self._kept.pop()[1] if self._kept else None
        for each in late:
            each.close()
        return found

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            room = len(self._kept) < KEPT_MAX and not self._closed
            if room:
                self._kept.append((time.monotonic(), connection))
        if not room:
            connection.close()

    def table(self, path: str) -> Mapping[str, Json]:
        """GET a JSON object. Raises RestError."""
        found = self.ask("GET", path)
        if not isinstance(found, dict):
            raise RestError(f"GET {path}: an object was expected", 0)
        return found


def _refused(method: str, path: str, status: int, reason: str) -> RestError:
    return RestError(f"{method} {path}: {status} {reason[:300]}", status)


def _origin(url: str) -> str:
    """Scheme, host and port."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def table(value: Json) -> Mapping[str, Json]:
    """The value as a JSON object; empty when it is none."""
    return value if isinstance(value, dict) else {}


def number(value: Json) -> int:
    """The value as a whole number; -1 when it is none."""
    return value if isinstance(value, int) else -1
