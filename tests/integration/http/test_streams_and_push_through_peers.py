"""Streams and push beside a sidecar that owns no partition: two processes, on every broker."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ackd_torture.ports import free_port, give_back
from tests.integration.engine.linked import ALL
from tests.integration.http.conftest import Sidecar, call
from tests.integration.http.linked_processes import (
    BASE,
    LinkedPair,
    ack,
    drop,
    linked_pair,
    publish,
    receive,
)
from tests.integration.push.conftest import Application, Seen, ok
from tests.support.part_of import Server
from tests.support.redis import RedisServer
from tests.support.wait import wait_until_async

pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(240)]
COUNT = 40
PUSH = """
retry_delays_ms = [100]

[subscriptions.orders.push]
url = "http://127.0.0.1:{port}/orders"
concurrency = 1
"""


@pytest.fixture(params=ALL)
def server(request: pytest.FixtureRequest) -> Server:
    """None: a local queue."""
    found: Server = None if request.param == "local" else request.getfixturevalue(request.param)
    return found


@pytest.fixture
def pair(valkey: RedisServer, server: Server) -> Iterator[LinkedPair]:
    """Two processes and no messages."""
    with linked_pair(valkey.url, server) as found:
        if server is None:
            drop(found.owner, "first")
        yield found


async def finished(sidecar: Sidecar, topic: str) -> None:
    """Wait until all messages of the topic are finished, wherever they are owned."""

    def lag() -> bool:
        rows = call(sidecar.admin_port, "GET", f"{BASE}/lag")[1]["partitions"]
        ends = [(each["watermark"], each["end"]) for each in rows if each["topic"] == topic]
        # Copies that RocketMQ brings to a busy sidecar are in partitions of their own.
        return sum(end for _, end in ends) >= COUNT and all(mark == end for mark, end in ends)

    async def there() -> bool:
        return await asyncio.to_thread(lag)

    await wait_until_async(there, "all messages to be finished")


async def test_a_stream_gives_all_messages_in_its_bounds(pair: LinkedPair) -> None:
    """It never has more unsettled than `in_flight`. A settle makes room at once, also of what came
    from another sidecar, and one at another sidecar within a second. What the stream had when its
    client went away comes at once to others.
    """
    query, named = {"in_flight": "5", "release_on_close": "true"}, {"Ackd-Worker": "reader"}
    held: list[dict[str, Any]] = []
    seen: Counter[str] = Counter()
    waited_s: list[float] = []
    settled_s = time.monotonic()
    for number in range(COUNT):
        status = await asyncio.to_thread(publish, pair.owner, str(number), pair.topic)
        assert status == HTTPStatus.CREATED
    async with (
        aiohttp.ClientSession(pair.other.url) as session,
        session.get(f"{BASE}/stream", params=query, headers=named) as answer,
    ):
        async for line in answer.content:
            message: dict[str, Any] = json.loads(line)
            if "heartbeat" in message:
                continue
            if not held:
                waited_s.append(time.monotonic() - settled_s)
            seen[message["json"]] += 1
            held.append(message)
            assert len(held) <= 5
            if len(seen) == COUNT:
                break
            if len(held) == 5:
                at = pair.owner if len(seen) == 5 else pair.other
                leases = [{"lease": each["lease"], "do": "ack"} for each in held]
                held.clear()
                body = json.dumps({"items": leases}).encode()
                settled = await asyncio.to_thread(call, at.port, "POST", "/v1/settle", body)
                assert settled[0] == HTTPStatus.OK
                settled_s = time.monotonic()
    assert statistics.median(waited_s) < 0.3, f"room a second after a settle: {waited_s}"
    left = {each["json"] for each in held}
    assert max(seen.values()) == 1
    while left:
        status, found = await asyncio.to_thread(receive, pair.owner, 10_000)
        assert status == HTTPStatus.OK
        [message] = found["messages"]
        assert message["attempt"] == 1, "a stream that ended counts no attempt"
        left.remove(message["json"])
        assert await asyncio.to_thread(ack, pair.other, message) == HTTPStatus.OK
    await finished(pair.other, pair.topic)


class Applications:
    """One beside each of two sidecars; both sidecars push."""

    def __init__(self, pair: LinkedPair, beside_owner: Application, other: Application) -> None:
        self.pair = pair
        self.beside_owner = beside_owner
        self.other = other


@pytest.fixture
async def applications(valkey: RedisServer, server: Server) -> AsyncIterator[Applications]:
    """They answer once a test lets them: until then 204 to nothing but the first message."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            port = free_port()
            stack.callback(give_back, port)
            application = Application(port, ok)
            await application.start()
            stack.push_async_callback(application.stop)
            made.append(application)
        one, two = (PUSH.format(port=each.port) for each in made)
        running = linked_pair(valkey.url, server, (one, two))
        pair = await asyncio.to_thread(running.__enter__)
        stack.push_async_callback(asyncio.to_thread, running.__exit__, None, None, None)
        names = (made[0], made[1]) if pair.owner.process.log_path.stem == "one" else made[::-1]
        yield Applications(pair, *names)


async def test_push_calls_the_applications_beside_both(applications: Applications) -> None:
    """One call at a time: while each works, the next message goes to whoever is free. What failed
    comes again, counted, and nothing comes twice that was acked.
    """
    pair, both = applications.pair, (applications.beside_owner, applications.other)
    acked: Counter[str] = Counter()
    attempts: dict[str, list[int]] = {}

    async def answer(seen: Seen) -> web.Response:
        text = str(json.loads(seen.body))
        await asyncio.sleep(0.02)  # the work
        attempts.setdefault(text, []).append(seen.attempt)
        if int(text) % 8 == 0 and seen.attempt == 1:
            return web.Response(status=500)
        acked[text] += 1
        return web.Response(status=204)

    for each in both:
        each.calls.clear()
        each.answer = answer
    for number in range(COUNT):
        status = await asyncio.to_thread(publish, pair.owner, str(number), pair.topic)
        assert status == HTTPStatus.CREATED

    async def all_acked() -> bool:
        return len(acked) == COUNT

    await wait_until_async(all_acked, "an ack of each")
    await finished(pair.other, pair.topic)
    assert set(acked.values()) == {1}
    assert {text: found for text, found in attempts.items() if found != [1]} == {
        str(n): [1, 2] for n in range(0, COUNT, 8)
    }
    assert all(each.most == 1 for each in both), "one call at a time"
    assert min(len(each.calls) for each in both) >= COUNT // 4
