"""Test support: HTTP by hand, for what a well-behaved client would never do."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass


@dataclass(slots=True)
class Answer:
    """A parsed answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> str:
        """The problem's type without `/problems/`; fails when it is no problem document."""
        assert self.headers["content-type"] == "application/problem+json", self
        document = json.loads(self.body)
        assert document["status"] == self.status
        assert document["title"]
        assert document["docs"].startswith("docs/reference/problems.md#")
        return str(document["type"]).removeprefix("/problems/")


class Wire:
    """One TCP connection to a port of the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> Wire:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, *parts: str | bytes) -> None:
        """Send these parts as they are."""
        for part in parts:
            self.writer.write(part.encode() if isinstance(part, str) else part)
        await self.writer.drain()

    async def post(self, path: str, body: bytes | str, *headers: str) -> None:
        """Send a whole POST with a JSON body."""
        raw = body.encode() if isinstance(body, str) else body
        lines = [
            f"POST {path} HTTP/1.1",
            "Host: localhost",
            f"Content-Length: {len(raw)}",
            *headers,
        ]
        if not any(line.lower().startswith("content-type") for line in headers):
            lines.append("Content-Type: application/json")
        await self.send("\r\n".join([*lines, "", ""]), raw)

    async def answer(self, timeout_s: float = 60.0) -> Answer:
        """Read one answer with a Content-Length (or none)."""
        async with asyncio.timeout(timeout_s):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.rstrip().split("\r\n")
            headers = {
                name.strip().lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines)
            }
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(first.split()[1]), headers, body)

    async def ended(self, timeout_s: float = 60.0) -> bool:
        """Whether the server closes the connection in time; what it still sends is dropped."""
        try:
            async with asyncio.timeout(timeout_s):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    async def close(self) -> None:
        """Hang up."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
