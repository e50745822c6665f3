"""What keeps web pages out of a port that has no token.

Any page in a browser on this machine can reach a loopback address. Three things betray it:

- `Origin`, with everything that is not a plain GET or HEAD.
- `Sec-Fetch-Site`, which browsers send to loopback addresses with every request, an image's too.
- `Host`, when the page's own name was turned to this address (DNS rebinding). Such a name is never
  an IP address, so whoever calls an address is let pass: probes and scrapers do.

A stream takes leases by a GET. It asks for a header besides that a page can only send with the
server's consent (a preflight request, which is never granted), whatever the browser leaves out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ackd.errors import ForbiddenError, ForeignHostError
from ackd.http.formats.problems import field_errors

if TYPE_CHECKING:
    from ackd.http.server.request import Request

SITES = frozenset({"none", "same-origin"})
"""An address that somebody typed, and a page that came from here."""
NAMES_KEPT = 64
STREAM_HEADER = "Ackd-Worker"


class Pages:
    """Looks at the requests to one port without a token. `names` None: by any name."""

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self._names = None if names is None else frozenset(each.lower() for each in names)
        self._passed: set[str] = set()

    def check_host(self, request: Request) -> None:
        """Raises ForeignHostError."""
        if self._names is None:
            return
        host = request.headers.get("Host")
        if host is None or host in self._passed:
            return
        name = _name(host)
        if not self._ours(name):
            raise ForeignHostError(
                f"Nobody calls this port {name[:100]!r}; `server.hosts` lists further names."
            )
        if len(self._passed) < NAMES_KEPT:
            self._passed.add(host)

    def _ours(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or name in (self._names or ()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def check_page(self, request: Request) -> None:
        """Raises ForbiddenError."""
        headers = request.headers
        if "Origin" in headers:
            raise ForbiddenError(f"A web page of {headers['Origin']} called.")
        site = headers.get("Sec-Fetch-Site")
        if site is not None and site not in SITES:
            raise ForbiddenError(f"A web page of another place called (Sec-Fetch-Site: {site}).")

    def check_stream(self, request: Request) -> None:
        """Raises BadParameterError."""
        if not request.headers.get(STREAM_HEADER):
            why = (
                "Where there is no token a stream has to name its worker (any name does): "
                "a web page can't."
            )
            raise field_errors([(f"header:{STREAM_HEADER}", why)])


def _name(host: str) -> str:
    """The name or address in a Host header, without its port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")
