"""Make one HTTP call to the application, and tell the ways in which it can end apart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict

from ackd import __version__
from ackd.push.push_request import PushRequest

CONNECT_S = 5.0
KEEPALIVE_S = 1.0
"""Servers close idle connections after 2 s or more; with a shorter time no call is lost to that."""
ANSWER_BYTES_MAX = 1 << 20


class Failed(StrEnum):
    """How a call ended without an answer. `UNREACHABLE`: there was no connection, so the
    application saw nothing of it.
    """

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    BROKEN = "broken"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """What the application said; `body` is cut at `ANSWER_BYTES_MAX`."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class PushFailure:
    """A call without an answer: how it ended, and why."""

    how: Failed
    detail: str


class PushClient:
    """Calls one address. `start` before use, `close` after it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Prepare the session; no connection is opened yet."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            headers={"User-Agent": f"ackd/{__version__}", "Accept-Encoding": "identity"},
            auto_decompress=False,
            skip_auto_headers=("Content-Type",),
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, request: PushRequest, bound: asyncio.Timeout) -> PushAnswer | PushFailure:
        """POST the request. `bound` can end it early. A redirect counts as an answer and is not
        followed.
        """
        session = self._session
        if session is None:
            return PushFailure(Failed.UNREACHABLE, "stopped")
        try:
            async with (
                bound,
                session.post(
                    self.url,
                    data=request.body,
                    headers=CIMultiDict(request.headers),
                    allow_redirects=False,
                ) as response,
            ):
                body = b""
                with suppress(aiohttp.ClientError, OSError):
                    body = await _read(response)
                return PushAnswer(response.status, response.headers, body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return PushFailure(Failed.UNREACHABLE, _words(error))
        except TimeoutError:
            return PushFailure(Failed.TIMEOUT, "no answer in time")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return PushFailure(Failed.BROKEN, _words(error))

    async def there(self) -> bool:
        """Try a connection to the address, and send nothing. True: it was accepted."""
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read the body up to its bound; cut a longer one, and do not reuse its connection."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            response.close()
            break
    return b"".join(pieces)[:ANSWER_BYTES_MAX]


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
