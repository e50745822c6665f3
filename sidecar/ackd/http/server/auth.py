"""Bearer tokens (RFC 6750) from a file that may change while ackd runs (a mounted secret, say)."""

from __future__ import annotations

import asyncio
import logging
from hmac import compare_digest
from pathlib import Path

from ackd.errors import ConfigError, UnauthorizedError
from ackd.hidden import HIDDEN

LOG = logging.getLogger("ackd.http")
LOOK_S = 1.0
TOKEN_BYTES_MAX = 4096


class TokenFile:
    """The token of one port. Without a file everybody may call (allowed on loopback only)."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.open = path is None
        self._expected = b""

    async def load(self) -> None:
        """Read the file for the first time. Raises OSError, ConfigError."""
        if self.path is not None:
            self._expected = b"Bearer " + await asyncio.to_thread(_read, self.path)

    def check(self, authorization: str | None) -> None:
        """Return if the token is right, else raise UnauthorizedError; a nearly right token takes as
        long as a wrong one.
        """
        expected = self._expected
        if authorization is None:
            raise UnauthorizedError("The `Authorization` header is missing.")
        scheme, _, token = authorization.partition(" ")
        given = f"Bearer {token.strip()}" if scheme.lower() == "bearer" else ""
        if not compare_digest(given.encode("utf-8", "surrogateescape"), expected):
            raise UnauthorizedError("The bearer token is wrong.")

    async def watch(self) -> None:
        """Read the file again whenever it changes, until cancelled. A broken file keeps the old
        token.
        """
        path = self.path
        if path is None:
            return
        seen = None
        while True:
            try:
                status = await asyncio.to_thread(path.stat)
                mark = (status.st_mtime_ns, status.st_ino, status.st_size)
                if mark != seen:
                    expected = b"Bearer " + await asyncio.to_thread(_read, path)
                    if seen is not None and expected != self._expected:
                        LOG.info("the bearer token was replaced: the token file has changed")
                    self._expected = expected
                    seen = mark
            except (OSError, ConfigError) as error:
                if seen is not None:
                    LOG.error("ackd can't read the token file, and keeps the old token: %s", error)  # noqa: TRY400
                    seen = None
            await asyncio.sleep(LOOK_S)


def _read(path: Path) -> bytes:
    """Read the first line of the file. Raises OSError, ConfigError."""
    with path.open("rb") as file:
        token = file.read(TOKEN_BYTES_MAX + 1).split(b"\n", 1)[0].strip()
    if not token or len(token) > TOKEN_BYTES_MAX or not token.isascii():
        raise ConfigError(f"{path}: the first line must be a token of ASCII characters.")
    HIDDEN.add(token)
    return token
