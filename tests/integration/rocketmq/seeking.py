"""Seeks of a group on RocketMQ, as the tests order them."""

from __future__ import annotations

from dataclasses import replace

from ackd.api.dead_letters import OperationView
from ackd.api.progress import SeekPlan, SeekRequest
from tests.integration.rocketmq.shop import NAME, Worker
from tests.support.wait import wait_until_async


async def plan(worker: Worker, request: SeekRequest) -> SeekPlan:
    """What a seek would do."""
    dry = replace(request, dry_run=True)
    found = await worker.runtime.progress.seek(NAME, dry)
    assert isinstance(found, SeekPlan)
    return found


async def seek(worker: Worker, request: SeekRequest) -> None:
    """To its end, and on."""
    await worker.runtime.pause(NAME, "group", "test", None)
    begun = await worker.runtime.progress.seek(NAME, request)
    assert isinstance(begun, OperationView)
    seen = [begun]

    async def over() -> bool:
        seen.append(await worker.runtime.dead.operation(begun.id))
        return seen[-1].state not in ("running", "cancelling")

    await wait_until_async(over, "the seek to end", timeout_s=90)
    assert seen[-1].state == "done", seen[-1]
    await worker.runtime.resume(NAME, "group")
