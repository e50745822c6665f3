"""When a run counts as drained: then each message that was confirmed has had its chance."""

import asyncio
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from ackd_torture.history import EventKind, histories, load
from ackd_torture.workload import Workload, WorkloadPlan


async def test_a_run_is_drained_after_the_last_publisher_knows(tmp_path: Path) -> None:
    """Else what it is told later would count as lost."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def publish(_: web.Request) -> web.Response:
        asked.set()
        await answer.wait()
        return web.json_response({"id": "orders/0/1"}, status=201)

    app = web.Application()
    app.router.add_post("/v1/topics/orders/messages", publish)
    async with TestServer(app) as server:
        plan = WorkloadPlan(
            urls=[str(server.make_url("")).rstrip("/")],
            topic="orders",
            sub="orders",
            seed=1,
            folder=tmp_path,
            publishers=1,
            consumers=0,
        )
        workload = Workload(plan)
        async with workload.running():
            await asked.wait()
            early = await workload.drain(0.2, 0.05)
            assert not early
            assert EventKind.DRAINED not in {each.kind for each in load(histories(tmp_path))}
            answer.set()
            assert not await workload.drain(0.2, 0.05), "nobody acked it"
    order = [each.kind for each in sorted(load(histories(tmp_path)), key=lambda e: e.mono_us)]
    assert order.index(EventKind.PUBLISHED) < order.index(EventKind.DRAINED)
