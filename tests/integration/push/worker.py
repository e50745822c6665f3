"""A small application in a process of its own, to be killed: it notes each call and sleeps.

`python worker.py PORT NOTES SECONDS`: answers 204 after SECONDS.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web


async def main(port: int, notes: Path, seconds: float) -> None:
    """Serve until killed."""

    async def called(request: web.Request) -> web.Response:
        with notes.open("a") as file:
            file.write(f"{request.headers['Ackd-Id']} {request.headers['Ackd-Attempt']}\n")
        await asyncio.sleep(seconds)
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/orders", called)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))
