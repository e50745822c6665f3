"""A TCP server in the event loop of a test, of which nothing is left when it ends."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ackd_torture.serving import Answer, Serving


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Call `answer` for each connection; the port."""
    server = Serving(answer, tls)
    try:
        yield server.listen()
    finally:
        await server.stop()
