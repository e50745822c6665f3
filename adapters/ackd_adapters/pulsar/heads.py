"""Many small questions to the admin interface: HEAD requests on connections that stay open.

`Rest` opens a connection for each question: right for a few, but it costs four times as much as
this when there is a question for each message.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from ackd_adapters.pulsar.rest import Admin, RestError

IDLE_MAX: Final = 16
"""Connections that stay open to one server."""
SERVERS_MAX: Final = 64
REDIRECTS_MAX: Final = 5
"""A broker redirects the question to the one that serves the topic."""
_REDIRECTS: Final = (301, 302, 307, 308)
_FINE: Final = 300


class Heads:
    """Safe to use from threads."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._scheme = urlsplit(admin.url).scheme
        self._lock = threading.Lock()
        self._idle: dict[str, list[http.client.HTTPConnection]] = {}
        self._closed = False

    def ask(self, path: str) -> Mapping[str, str]:
        """The headers of the answer, by their names in lower case. Raises RestError."""
        address = self._admin.address(path)
        for _ in range(REDIRECTS_MAX):
            try:
                status, found = self._one(urlsplit(address))
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise RestError(f"HEAD {path}: {error!r}", 0) from None
            if status < _FINE:
                return found
            if status not in _REDIRECTS:
                raise RestError(f"HEAD {path}: {status}", status)
            address = urljoin(address, found.get("location", ""))
            if urlsplit(address).scheme != self._scheme:
                break  # A token that is sent by TLS must never go without TLS.
        raise RestError(f"HEAD {path}: led nowhere, at last to {address}", 0)

    def close(self) -> None:
        """Close idle connections now, and busy ones when they become idle."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connection in (each for some in idle.values() for each in some):
            connection.close()

    def _one(self, at: SplitResult) -> tuple[int, Mapping[str, str]]:
        headers = self._admin.authorization()
        target = f"{at.path}?{at.query}" if at.query else at.path
        with self._lock:
            some = self._idle.get(at.netloc)
            kept = some.pop() if some else None
        if kept is not None:
            try:
                return self._on(kept, at.netloc, target, headers)
            except (OSError, http.client.HTTPException):
                pass  # The server has closed it meanwhile.
        return self._on(self._fresh(at), at.netloc, target, headers)

    def _on(
        self,
        connection: http.client.HTTPConnection,
        server: str,
        target: str,
        headers: dict[str, str],
    ) -> tuple[int, Mapping[str, str]]:
        try:
            connection.request("HEAD", target, headers=headers)
            answer = connection.getresponse()
            answer.read()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            some = self._idle.setdefault(server, [])
            keep = not self._closed and len(some) < IDLE_MAX and len(self._idle) <= SERVERS_MAX
            if keep:
                some.append(connection)
        if not keep:
            connection.close()
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}

    def _fresh(self, at: SplitResult) -> http.client.HTTPConnection:
        host = at.hostname or ""
        if self._scheme == "https":
            return http.client.HTTPSConnection(
                host, at.port, timeout=self._admin.timeout_s, context=self._admin.tls
            )
        return http.client.HTTPConnection(host, at.port, timeout=self._admin.timeout_s)
