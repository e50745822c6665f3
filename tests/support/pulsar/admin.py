"""The broker's admin REST interface, as far as tests need it; blocking."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = Any
"""What the broker answers is looked into by tests only."""


class AdminError(RuntimeError):
    """The broker refused; `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class Admin:
    """`url` up to the port. Topic names are `tenant/namespace/name`."""

    def __init__(self, url: str, *, ca: Path | None = None, token: str | None = None) -> None:
        self._url = f"{url}/admin/v2"
        self._tls = None if ca is None else ssl.create_default_context(cafile=str(ca))
        self._token = token

    def ask(self, method: str, path: str, body: Json = None, timeout_s: float = 60.0) -> Json:
        """One request; raises AdminError, OSError when nobody listens."""
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 -- our own broker
            f"{self._url}/{path}", data, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s, context=self._tls) as answer:  # noqa: S310
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                raise AdminError(error.code, error.read().decode(errors="replace")) from None
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text

    def create_topic(self, topic: str, partitions: int = 0) -> str:
        """Make it; 0 = not partitioned. Returns the whole name."""
        if partitions:
            self.ask("PUT", f"persistent/{topic}/partitions", partitions)
        else:
            self.ask("PUT", f"persistent/{topic}")
        return f"persistent://{topic}"

    def stats(self, topic: str) -> Json:
        """With an exact backlog."""
        return self.ask("GET", f"persistent/{topic}/stats?getPreciseBacklog=true")

    def backlog(self, topic: str, subscription: str) -> int:
        """Entries (batches count as one) that the subscription has not acked."""
        return int(self.stats(topic)["subscriptions"][subscription]["msgBacklog"])

    def internal_stats(self, topic: str) -> Json:
        """Ledgers and cursors."""
        return self.ask("GET", f"persistent/{topic}/internalStats")

    def unload(self, topic: str) -> None:
        """Close the topic; clients connect anew. A broker's restart as consumers see it."""
        self.ask("PUT", f"persistent/{topic}/unload")
