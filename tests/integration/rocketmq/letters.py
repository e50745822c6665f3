"""What tests do with the dead letters of a `Worker`."""

from ackd.api.dead_letters import DeadRequest, DeadView, Kind, OperationView, Progress, To
from tests.integration.rocketmq.shop import NAME, Worker
from tests.support.wait import wait_until_async


async def letters(worker: Worker, count: int) -> list[DeadView]:
    """So many dead letters, as `ackd dead list` shows them."""
    found: list[DeadView] = []

    async def listed() -> bool:
        found[:] = (await worker.runtime.dead.page(NAME, None, 100)).messages
        return len(found) == count

    await wait_until_async(listed, f"{count} dead letters", timeout_s=60)
    return found


async def done(worker: Worker, kind: Kind, *ids: str, to: To = To.ORIGIN) -> OperationView:
    """Carry out an operation on these."""
    request = DeadRequest(kind, ids=ids, to=to, confirm=NAME)
    begun = await worker.runtime.dead.begin(NAME, request)
    assert isinstance(begun, OperationView)
    found: list[OperationView] = [begun]

    async def over() -> bool:
        found[0] = await worker.runtime.dead.operation(begun.id)
        return found[0].state != Progress.RUNNING.value

    await wait_until_async(over, f"the operation: {begun}", timeout_s=60)
    assert found[0].state == Progress.DONE.value, found
    assert found[0].moved == len(ids), found
    return found[0]


async def peek(worker: Worker, view: DeadView) -> bytes | None:
    """The body of one."""
    return (await worker.runtime.dead.peek(NAME, view.id)).record.value
