"""One request as the handlers see it: what the parser found, and the connection that it came on.

aiohttp's own request object keeps cookies, forms and a task for itself; nobody here asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from multidict import CIMultiDictProxy

if TYPE_CHECKING:
    from ackd.http.server.server import Connection


class Request:
    """A head that has arrived; `content` gives the body as it comes."""

    __slots__ = ("connection", "content", "head", "headers", "method", "path")

    def __init__(
        self, head: RawRequestMessage, content: StreamReader, connection: Connection
    ) -> None:
        self.head = head
        self.content = content
        self.connection = connection
        self.method: str = head.method
        self.headers: CIMultiDictProxy[str] = head.headers
        # Path and query as they were sent; the path alone of a request in absolute form.
        path = head.path
        self.path: str = path if path.startswith("/") else head.url.raw_path

    @property
    def content_length(self) -> int | None:
        """The announced length of the body (the parser took digits only), None without one."""
        text = self.headers.get("Content-Length")
        return None if text is None else int(text)

    def _cancel(self, error: BaseException) -> None:
        """The connection is lost: whoever reads the body hears of it (aiohttp's protocol calls)."""
        self.content.set_exception(error)

    def _finish(self) -> None:
        """Nothing to free (aiohttp's protocol asks, after an upgrade that was not taken)."""
