"""What a request may cost, in things that can be counted: times are for `make bench`."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.http.conftest import Dial, Running

REQUESTS = 20
RECEIVE = "/v1/subscriptions/orders/receive"


async def test_requests_of_a_connection_share_its_task(server: Running, dial: Dial) -> None:
    wire = await dial(server.port)
    await wire.post(RECEIVE, "{}")
    await wire.answer()
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        made.append(work.__qualname__)
        return asyncio.Task(work, loop=loop, **options)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        for _ in range(REQUESTS):
            await wire.post(RECEIVE, "{}")
            assert (await wire.answer()).status == 200
    finally:
        loop.set_task_factory(None)
    # The client's side of this test bounds its own waits without tasks.
    assert made == []
