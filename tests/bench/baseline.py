"""The floor: a bare aiohttp server that answers requests of the same shape and does nothing else.

What ackd costs above it is ackd; what it costs itself is HTTP in Python on this machine, on this
day. Receives are answered with prepared messages of the same size, settles with one result an item.
"""

import asyncio
import sys

import orjson
from aiohttp import web

LEASE = "v1." + "x" * 60


def message(number: int, value_bytes: int) -> dict[str, object]:
    """One message as ackd answers it."""
    return {
        "id": f"bench/0/{number}",
        "lease": LEASE,
        "topic": "bench",
        "key": None,
        "attempt": 1,
        "attempts_max": 17,
        "first_seen_ms": 1_700_000_000_000,
        "deadline_ms": 1_700_000_030_000,
        "published_ms": 1_700_000_000_000,
        "headers": [],
        "json": {"at_us": number, "pad": "x" * value_bytes},
    }


async def receive(request: web.Request) -> web.Response:
    """As many as were asked for, encoded anew for each request."""
    asked = orjson.loads(await request.read())
    answer = {"messages": [message(n, 150) for n in range(asked["max"])]}
    if "settle" in asked:
        answer["settled"] = [{"status": "acked"} for _ in asked["settle"]]
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def settle(request: web.Request) -> web.Response:
    """One result an item."""
    asked = orjson.loads(await request.read())
    results = [{"status": "acked"} for _ in asked["items"]]
    return web.Response(body=orjson.dumps({"results": results}), content_type="application/json")


async def serve(port: int) -> None:
    """Serve until killed."""
    app = web.Application()
    app.router.add_post("/v1/subscriptions/{sub}/receive", receive)
    app.router.add_post("/v1/settle", settle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


def main() -> None:
    """Serve on the port that is named; on uvloop if ackd would use it."""
    try:
        import uvloop  # noqa: PLC0415 -- optional, as for ackd

        uvloop.run(serve(int(sys.argv[1])))
    except ImportError:
        asyncio.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
